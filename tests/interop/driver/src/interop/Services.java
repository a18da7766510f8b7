package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** What a broker's services do with a store: retention, times, queue extension, transactions. */
final class Services {
    private final Engine engine;

    Services(Engine engine) {
        this.engine = engine;
    }

    JsonElement answer(String what, JsonObject request) throws Exception {
        switch (what) {
            case "clean":
                return clean(request.get("manual").getAsBoolean(), request.get("rounds").getAsInt());
            case "time":
                return time(request);
            case "ext":
                return ext();
            case "prepare":
                return prepare(request.getAsJsonArray("messages"));
            case "check":
                return check();
            default:
                throw new IllegalArgumentException("unknown request " + what);
        }
    }

    /** Rounds of retention as they come every ten seconds, one behind the other. */
    JsonObject clean(boolean manual, int rounds) throws Exception {
        if (manual) {
            engine.store.executeDeleteFilesManually();
        }
        for (int done = 0; done < rounds; done++) {
            run("cleanFilesPeriodically");
            if (!Engine.IS_4) {
                run("cleanQueueFilesPeriodically");
            }
        }
        return new JsonObject();
    }

    /** Runs a task of the store; the newest version has those of queues in a class of their own. */
    private void run(String task) throws Exception {
        Object owner = engine.store;
        Method method;
        try {
            method = DefaultMessageStore.class.getDeclaredMethod(task);
        } catch (NoSuchMethodException elsewhere) {
            owner = DefaultMessageStore.class.getMethod("getQueueStore").invoke(engine.store);
            method = owner.getClass().getDeclaredMethod(task);
        }
        method.setAccessible(true);
        method.invoke(owner);
    }

    /** getOffsetInQueueByTime of several times; "boundary" is 5.x's, or null. */
    private JsonArray time(JsonObject request) throws Exception {
        String topic = request.get("topic").getAsString();
        int queueId = request.get("queueId").getAsInt();
        JsonElement boundary = request.get("boundary");
        JsonArray offsets = new JsonArray();
        for (JsonElement time : request.getAsJsonArray("times")) {
            offsets.add(boundary.isJsonNull()
                ? engine.store.getOffsetInQueueByTime(topic, queueId, time.getAsLong())
                : bounded(topic, queueId, time.getAsLong(), boundary.getAsString()));
        }
        return offsets;
    }

    private long bounded(String topic, int queueId, long time, String boundary) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.common.BoundaryType");
        Object value = type.getMethod("getType", String.class).invoke(null, boundary);
        Method method = DefaultMessageStore.class.getMethod(
            "getOffsetInQueueByTime", String.class, int.class, long.class, type);
        return (Long) method.invoke(engine.store, topic, queueId, time, value);
    }

    /** Rows of every unit whose tags code is an address: what stands there. */
    private JsonArray ext() {
        JsonArray rows = new JsonArray();
        Map<String, ? extends Map<Integer, ?>> table = engine.store.getConsumeQueueTable();
        for (String topic : new TreeMap<>(table).keySet()) {
            for (Map.Entry<Integer, ?> entry : new TreeMap<>(table.get(topic)).entrySet()) {
                ConsumeQueue queue = (ConsumeQueue) entry.getValue();
                for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue(); at++) {
                    long address = queue.getIndexBuffer(at).getByteBuffer().getLong(12);
                    ConsumeQueueExt.CqExtUnit unit = new ConsumeQueueExt.CqExtUnit();
                    if (queue.isExtAddr(address) && queue.getExt(address, unit)) {
                        JsonObject row = new JsonObject();
                        row.addProperty("topic", topic);
                        row.addProperty("queueId", entry.getKey());
                        row.addProperty("queueOffset", at);
                        row.addProperty("tagsCode", unit.getTagsCode());
                        row.addProperty("storeTimestamp", unit.getMsgStoreTime());
                        rows.add(row);
                    }
                }
            }
        }
        return rows;
    }

    /** A broker that is not started: its services on this store, with the offsets of config/. */
    private BrokerController broker() {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        BrokerController broker = new BrokerController(
            config, new NettyServerConfig(), new NettyClientConfig(), engine.config);
        broker.setMessageStore(engine.store);
        broker.getConsumerOffsetManager().load();
        for (String topic : new String[] {
            TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC, TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC}) {
            broker.getTopicConfigManager().getTopicConfigTable().put(topic, new TopicConfig(topic, 1, 1, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        return broker;
    }

    private TransactionalMessageServiceImpl transactions(BrokerController broker) {
        return new TransactionalMessageServiceImpl(new TransactionalMessageBridge(broker, engine.store));
    }

    /** Half messages, as a broker stores what a producer prepares. */
    private JsonArray prepare(JsonArray messages) throws Exception {
        TransactionalMessageServiceImpl service = transactions(broker());
        JsonArray results = new JsonArray();
        for (JsonElement row : messages) {
            MessageExt message = Engine.decoded(row.getAsJsonObject(), engine.message());
            // The class of a message lies in another package in 5.x.
            Method method = service.getClass().getMethod("prepareMessage", message.getClass());
            results.add(Engine.result((PutMessageResult) method.invoke(service, message)));
        }
        return results;
    }

    /** One round of the check, nothing being too young: the keys of those it asks about. */
    private JsonObject check() throws Exception {
        JsonArray asked = new JsonArray();
        JsonArray discarded = new JsonArray();
        BrokerController broker = broker();
        transactions(broker).check(0, 15, new AbstractTransactionalMessageCheckListener() {
            @Override
            public void resolveHalfMsg(MessageExt message) {
                asked.add(new JsonPrimitive(message.getKeys()));
            }

            @Override
            public void resolveDiscardMsg(MessageExt message) {
                discarded.add(new JsonPrimitive(message.getKeys()));
            }
        });
        broker.getConsumerOffsetManager().persist();
        JsonObject answer = new JsonObject();
        answer.add("asked", asked);
        answer.add("discarded", discarded);
        return answer;
    }
}
