package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AllocateMappedFileService;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** One DefaultMessageStore on one directory; what differs between versions is in the subclass. */
abstract class Engine {
    static final boolean IS_4 = System.getProperty("interop.engine").equals("4");
    /**
     * After so many messages the dispatch waits for the next millisecond. Index files are named by it, and
     * two of one name are one file to the engine: a small one (201 items, and four of a message) must not
     * be full within one.
     */
    private static final int PACE = 40;
    /** So often a dispatch that gets no further has looked at the log; a thousandth of a second each. */
    private static final int LOOKS = 300;
    /** So long anything may take that is only slow. */
    static final int PATIENCE_MILLIS = 60_000;

    DefaultMessageStore store;
    MessageStoreConfig config;
    /** Whether the store is that of a broker in controller mode. */
    boolean isControlled;
    /**
     * Whether 4.9.3's store delivers delayed messages, as it does from the second second on: those of a
     * store that was killed are due then, for its recovery does not know the levels yet. Who looks at a
     * store would see more of it the longer he took.
     */
    boolean delivers;

    /** One that delivers nothing. */
    static Engine create(String root, JsonObject settings) throws Exception {
        return create(root, settings, false);
    }

    /** One whose dispatch takes its time ({@link #PACE}). */
    static Engine create(String root, JsonObject settings, boolean delivers) throws Exception {
        Engine engine = atItsOwnPace(root, settings, delivers);
        int[] dispatched = {0};
        engine.store.getDispatcherList().add(message -> {
            if (++dispatched[0] % PACE == 0) {
                LockSupport.parkNanos(1_500_000);
            }
        });
        return engine;
    }

    /** One that is measured. */
    static Engine atItsOwnPace(String root, JsonObject settings, boolean delivers) throws Exception {
        String name = "interop.Engine" + System.getProperty("interop.engine");
        Engine engine = (Engine) Class.forName(name).getDeclaredConstructor().newInstance();
        // A put fails that has waited five seconds for a new file of the log, else.
        Settling.field(AllocateMappedFileService.class, "waitTimeOut").setInt(null, PATIENCE_MILLIS);
        engine.config = config(root, settings);
        engine.isControlled = settings.has("enableControllerMode");
        engine.delivers = delivers;
        synchronized (Engine.class) {
            // 5.3.3 makes the buckets of all stores' statistics in one map, which knows no threads.
            engine.open();
        }
        return engine;
    }

    /** What the timer files of a directory say, read by this version's own classes. */
    static JsonArray timers(String root, JsonObject settings) throws Exception {
        String name = "interop.Engine" + System.getProperty("interop.engine");
        Engine engine = (Engine) Class.forName(name).getDeclaredConstructor().newInstance();
        engine.config = config(root, settings);
        return engine.timerRows();
    }

    JsonArray timerRows() throws Exception {
        throw new UnsupportedOperationException("this version has no timers");
    }

    static MessageStoreConfig config(String root, JsonObject settings) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0);
        // A machine that is busy is no disk that hangs: 5 seconds and 1, else.
        config.setSyncFlushTimeout(PATIENCE_MILLIS);
        config.setOsPageCacheBusyTimeOutMills(PATIENCE_MILLIS);
        // Nor is anything deleted by the clock, from the second minute on, but where it is said when.
        config.setDeleteWhen("99");
        config.setDiskMaxUsedSpaceRatio(95);
        Properties properties = new Properties();
        for (Map.Entry<String, JsonElement> setting : settings.entrySet()) {
            properties.setProperty(setting.getKey(), setting.getValue().getAsString());
        }
        MixAll.properties2Object(properties, config);
        if (config.isEnableDLegerCommitLog() && config.getdLegerPeers() == null) {
            // A group of one member, to whom nobody else talks.
            config.setdLegerPeers(config.getdLegerSelfId() + "-127.0.0.1:" + Node.freePort());
        }
        return config;
    }

    /** Makes the store of this version with its configuration. */
    abstract void open() throws Exception;

    /** An empty MessageExtBrokerInner of this version. */
    abstract MessageExt message();

    abstract void setPropertiesString(MessageExt message, String properties);

    abstract PutMessageResult put(MessageExt message);

    /** A consumer's filter as the broker makes it; the type is TAG or SQL92. */
    abstract MessageFilter filter(String type, String expression) throws Exception;

    /** What the broker does before the store gets a message, where 4.9.3's store did it itself. */
    void prepare(MessageExt message) {
    }

    /** Waits until the store can take one more put, where a broker would have it wait or refuse it. */
    void awaitRoom() throws InterruptedException {
    }

    /** A body as a client of this version compresses it; base64 both ways. */
    JsonElement compress(String how, String body) throws Exception {
        throw new UnsupportedOperationException("this version's client has one compression only");
    }

    /** The epochs of a file, when those from an offset on have been cut; -1: none are. */
    JsonArray epochs(String path, long cut) {
        throw new UnsupportedOperationException("this version has no controller");
    }

    /** Compacts a queue now; the queue offset up to which it is. */
    long compact(String topic, int queueId) throws Exception {
        throw new UnsupportedOperationException("this version does not compact topics");
    }

    JsonArray put(JsonArray messages, boolean batch) throws Exception {
        JsonArray results = new JsonArray();
        if (batch) {
            awaitRoom();
            results.add(result(store.putMessages(batchOf(messages))));
            return results;
        }
        for (JsonElement one : messages) {
            MessageExt message = decoded(one.getAsJsonObject(), message());
            prepare(message);
            awaitRoom();
            setPropertiesString(message, MessageDecoder.messageProperties2String(message.getProperties()));
            results.add(result(put(message)));
        }
        return results;
    }

    /** As SendMessageProcessor has it: bodies encoded as by a client; queue and hosts of the first. */
    private MessageExtBatch batchOf(JsonArray rows) throws UnknownHostException {
        List<Message> messages = new ArrayList<>();
        for (JsonElement row : rows) {
            messages.add(decoded(row.getAsJsonObject(), new MessageExt()));
        }
        MessageExtBatch batch = new MessageExtBatch();
        decoded(rows.get(0).getAsJsonObject(), batch);
        MessageAccessor.setProperties(batch, new HashMap<>());
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    static MessageExt decoded(JsonObject row, MessageExt message) throws UnknownHostException {
        message.setTopic(row.get("topic").getAsString());
        message.setQueueId(row.get("queueId").getAsInt());
        message.setBody(Base64.getDecoder().decode(row.get("body").getAsString()));
        message.setFlag(row.get("flag").getAsInt());
        message.setSysFlag(row.get("sysFlag").getAsInt());
        MessageAccessor.setProperties(message, new HashMap<>());
        for (Map.Entry<String, JsonElement> entry : row.getAsJsonObject("properties").entrySet()) {
            MessageAccessor.putProperty(message, entry.getKey(), entry.getValue().getAsString());
        }
        message.setBornTimestamp(row.get("bornTimestamp").getAsLong());
        message.setBornHost(host(row.get("bornHost").getAsString()));
        message.setStoreHost(host(row.get("storeHost").getAsString()));
        message.setReconsumeTimes(row.get("reconsumeTimes").getAsInt());
        message.setPreparedTransactionOffset(row.get("preparedTransactionOffset").getAsLong());
        return message;
    }

    /** "address|port", the form of the golden rows. */
    static InetSocketAddress host(String text) throws UnknownHostException {
        int bar = text.lastIndexOf('|');
        InetAddress address = InetAddress.getByName(text.substring(0, bar));
        return new InetSocketAddress(address, Integer.parseInt(text.substring(bar + 1)));
    }

    static JsonObject result(PutMessageResult result) {
        JsonObject row = new JsonObject();
        row.addProperty("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            row.addProperty("physicalOffset", append.getWroteOffset());
            row.addProperty("size", append.getWroteBytes());
            row.addProperty("msgId", append.getMsgId());
            row.addProperty("queueOffset", append.getLogicsOffset());
            row.addProperty("storeTimestamp", append.getStoreTimestamp());
        }
        return row;
    }

    /**
     * Starts the loaded store; null, or what went wrong. With a log that it cannot dispatch the engine
     * waits for ever: then its process is of no more use.
     *
     * @throws OutOfMemoryError a record, whatever it says, is the size of an array
     */
    String start() throws Exception {
        Throwable[] problem = {null};
        Thread starter = new Thread(() -> {
            try {
                store.start();
            } catch (Throwable thrown) {
                problem[0] = thrown;
            }
        });
        starter.setDaemon(true);
        starter.start();
        Settling settling = new Settling(store);
        long patience = System.currentTimeMillis() + 5 * PATIENCE_MILLIS;
        while (starter.isAlive() && !settling.isStuck(LOOKS) && System.currentTimeMillis() < patience) {
            starter.join(20);
        }
        if (starter.isAlive()) {
            return "it does not come to an end";
        }
        if (problem[0] instanceof OutOfMemoryError) {
            throw (OutOfMemoryError) problem[0];
        }
        if (problem[0] == null && store.getCommitLog() instanceof DLedgerCommitLog) {
            awaitLeader(((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer());
        }
        return problem[0] == null ? null : problem[0].toString();
    }

    /** Waits until the group's only member leads it, and all that it holds is committed. */
    private static void awaitLeader(DLedgerServer server) throws InterruptedException {
        long patience = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (!server.getMemberState().isLeader() || Settling.isCommitting(server)) {
            if (System.currentTimeMillis() > patience) {
                throw new IllegalStateException("the member does not become the group's leader");
            }
            Thread.sleep(10);
        }
    }

    /** As {@link Settling#await}. */
    void settle() throws Exception {
        new Settling(store).await();
    }

    /** As {@link Stopping#stop(DefaultMessageStore)}. */
    JsonObject shutdown() throws Exception {
        Stopping.stop(store);
        return new JsonObject();
    }
}
