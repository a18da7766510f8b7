package interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Does one thing with the engine, a round for each line that it is sent, and answers each with a line,
 * {"seconds": what the round took, "done": how much it did}. It ends with its input. The argument is a
 * JSON object: what, root, config, and what the thing needs.
 *
 * <p>What is timed is the thing alone; a caller that wants all of a process takes one round and its own
 * clock.
 */
public final class Bench {
    /** 5.x reads it in any case, and looks for another property than these messages have if it is told so. */
    private static final boolean READS_BODY = Integer.getInteger("interop.engine") == 4;

    private final JsonObject request;
    private final Path root;
    private Engine engine;
    private boolean isStarted;
    private double seconds;

    private Bench(JsonObject request) {
        this.request = request;
        this.root = Path.of(text("root"));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Bench bench = new Bench(JsonParser.parseString(arguments[0]).getAsJsonObject());
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (asked.readLine() != null) {
            bench.seconds = 0;
            long done = bench.round(bench.text("what"));
            JsonObject answer = new JsonObject();
            answer.addProperty("seconds", bench.seconds);
            answer.addProperty("done", done);
            answers.println(Main.GSON.toJson(answer));
        }
        if (bench.isStarted) {
            bench.stop();
        }
        Runtime.getRuntime().halt(0);
    }

    private String text(String name) {
        return request.get(name).getAsString();
    }

    private long round(String what) throws Exception {
        switch (what) {
            case "put":
                return put();
            case "check":
                return onLoaded(this::check);
            case "dispatch":
                return dispatch();
            case "pull":
                return onStarted(this::pull);
            case "query":
                return onStarted(this::query);
            case "open":
                return open();
            default:
                throw new IllegalArgumentException("unknown thing " + what);
        }
    }

    private interface Work {
        long run() throws Exception;
    }

    private long timed(Work work) throws Exception {
        long start = System.nanoTime();
        long done = work.run();
        seconds += (System.nanoTime() - start) / 1e9;
        return done;
    }

    /**
     * Has the system take so many bytes of memory for files, and free them again: what it gives next it has.
     * A virtual machine gives its host back what was free for seconds, and to get a page anew takes
     * several times as long as to write it.
     */
    private void warmMemory() throws Exception {
        if (!request.has("warmed")) {
            return;
        }
        Path scratch = Path.of(root + ".scratch");
        try (OutputStream file = Files.newOutputStream(scratch)) {
            byte[] zeros = new byte[1 << 20];
            for (long left = request.get("warmed").getAsLong(); left > 0; left -= zeros.length) {
                file.write(zeros);
            }
        }
        Files.delete(scratch);
    }

    private void load() throws Exception {
        engine = Engine.atItsOwnPace(root.toString(), request.getAsJsonObject("config"), false);
        if (!engine.store.load()) {
            throw new IllegalStateException("the engine does not load the store");
        }
    }

    private void start() throws Exception {
        engine.store.start();
        isStarted = true;
    }

    /** Clean, so that the next one need not recover. */
    private void stop() throws Exception {
        engine.shutdown();
        isStarted = false;
    }

    /** Work on a store that is loaded once and serves all rounds. */
    private long onLoaded(Work work) throws Exception {
        if (engine == null) {
            load();
        }
        return timed(work);
    }

    private long onStarted(Work work) throws Exception {
        if (engine == null) {
            load();
            start();
        }
        return timed(work);
    }

    /** Messages of a file of lines, one by one, until all of them have their unit and index items. */
    private long put() throws Exception {
        remove(root);
        load();
        start();
        List<MessageExt> messages = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(text("from")))) {
            messages.add(message(JsonParser.parseString(line).getAsJsonObject()));
        }
        warmMemory();
        long done = timed(() -> {
            for (MessageExt message : messages) {
                if (engine.put(message).getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    throw new IllegalStateException("the engine refuses a message");
                }
            }
            settle();
            return messages.size();
        });
        stop();
        return done;
    }

    private MessageExt message(JsonObject row) throws Exception {
        MessageExt message = engine.message();
        message.setTopic(row.get("topic").getAsString());
        message.setQueueId(row.get("queue_id").getAsInt());
        message.setBody(row.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
        message.setTags(row.get("tags").getAsString());
        message.setKeys(row.get("keys").getAsString());
        for (Map.Entry<String, JsonElement> entry : row.getAsJsonObject("properties").entrySet()) {
            MessageAccessor.putProperty(message, entry.getKey(), entry.getValue().getAsString());
        }
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(Engine.host("127.0.0.1|0"));
        message.setStoreHost(Engine.host("127.0.0.1|10911"));
        engine.setPropertiesString(message, MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private void settle() throws InterruptedException {
        while (engine.store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    /** Every record of the log with its checksum, as a recovery checks the last files. */
    private long check() {
        CommitLog log = engine.store.getCommitLog();
        long count = 0;
        long end = engine.store.getMaxPhyOffset();
        for (long at = engine.store.getMinPhyOffset(); at < end; ) {
            SelectMappedBufferResult rest = log.getData(at);
            ByteBuffer buffer = rest.getByteBuffer();
            DispatchRequest record = log.checkMessageAndReturnSize(buffer, true, READS_BODY);
            while (record.isSuccess() && record.getMsgSize() > 0 && at + buffer.position() <= end) {
                count++;
                record = log.checkMessageAndReturnSize(buffer, true, READS_BODY);
            }
            rest.release();
            at += rest.getSize();
            if (!record.isSuccess() && at < end) {
                throw new IllegalStateException("damage before " + at);
            }
        }
        return count;
    }

    /** Queues and index anew from the log, until the dispatch has caught up with it. */
    private long dispatch() throws Exception {
        remove(root.resolve("consumequeue"));
        remove(root.resolve("index"));
        load();
        Thread starter = new Thread(() -> {
            try {
                start();
            } catch (Exception problem) {
                problem.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        warmMemory();
        long done = timed(() -> {
            starter.start();
            // Its start() itself looks only once a second.
            settle();
            return engine.store.getMaxPhyOffset() - engine.store.getMinPhyOffset();
        });
        starter.join();
        stop();
        return done;
    }

    /** One queue from its beginning to its end, every message decoded with its body. */
    private long pull() {
        long offset = 0;
        long count = 0;
        while (true) {
            GetMessageResult found = engine.store.getMessage(
                "bench", text("topic"), request.get("queueId").getAsInt(), offset, 32, null);
            if (found.getStatus() != GetMessageStatus.FOUND) {
                return count;
            }
            for (ByteBuffer buffer : found.getMessageBufferList()) {
                if (MessageDecoder.decode(buffer, true, false) == null) {
                    throw new IllegalStateException("no message");
                }
                count++;
            }
            found.release();
            offset = found.getNextBeginOffset();
        }
    }

    private long query() {
        long count = 0;
        for (JsonElement key : request.getAsJsonArray("keys")) {
            QueryMessageResult found =
                engine.store.queryMessage(text("topic"), key.getAsString(), 64, 0, Long.MAX_VALUE);
            for (ByteBuffer buffer : found.getMessageBufferList()) {
                count += MessageDecoder.decode(buffer, true, false) == null ? 0 : 1;
            }
            found.release();
        }
        return count;
    }

    /** Loading, and one look at the newest message. */
    private long open() throws Exception {
        long done = timed(() -> {
            load();
            return engine.store.lookMessageByOffset(request.get("offset").getAsLong()) == null ? 0 : 1;
        });
        start();
        stop();
        return done;
    }

    private static void remove(Path directory) throws Exception {
        if (Files.exists(directory)) {
            try (Stream<Path> paths = Files.walk(directory)) {
                paths.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }
}
