package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonPrimitive;
import java.lang.reflect.Method;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;
import org.apache.rocketmq.store.kv.CompactionLog;
import org.apache.rocketmq.store.kv.CompactionStore;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** 5.3.3. */
final class Engine5 extends Engine {
    @Override
    void open() throws Exception {
        BrokerConfig broker = new BrokerConfig();
        broker.setEnableControllerMode(isControlled);
        BrokerStatsManager statistics = new BrokerStatsManager(broker);
        MessageArrivingListener listener = (t, q, o, c, s, f, p) -> { };
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put("BatchTopic", topic("BatchTopic", "queue.type", "BatchCQ"));
        topics.put("CompactTopic", topic("CompactTopic", "cleanup.policy", "COMPACTION"));
        store = config.isEnableRocksDBStore()
            ? new RocksDBMessageStore(config, statistics, listener, broker, topics)
            : new DefaultMessageStore(config, statistics, listener, broker, topics);
    }

    private static TopicConfig topic(String name, String attribute, String value) {
        TopicConfig topic = new TopicConfig(name);
        topic.setAttributes(new HashMap<>(Map.of(attribute, value)));
        return topic;
    }

    /** What the compaction's schedule does a quarter of an hour after the start, and again and again. */
    @Override
    long compact(String topic, int queueId) throws Exception {
        CompactionStore compaction =
            (CompactionStore) Settling.field(DefaultMessageStore.class, "compactionStore").get(store);
        Map<?, ?> logs =
            (Map<?, ?>) Settling.field(CompactionStore.class, "compactionLogTable").get(compaction);
        Method run = CompactionLog.class.getDeclaredMethod("doCompaction");
        run.setAccessible(true);
        run.invoke(logs.get(topic + "_" + queueId));
        return compaction.getPositionMgr().getOffset(topic, queueId);
    }

    @Override
    JsonArray timerRows() throws Exception {
        return TimerRows.of(config);
    }

    @Override
    MessageExt message() {
        return new MessageExtBrokerInner();
    }

    @Override
    void setPropertiesString(MessageExt message, String properties) {
        ((MessageExtBrokerInner) message).setPropertiesString(properties);
    }

    @Override
    PutMessageResult put(MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    /**
     * Buffers of the pool for all files that one put may ask for: a next one, the one after it, and one
     * that is still being made. A file that finds the pool empty has no buffer; what is put there goes to
     * the file itself, and no commit counts it, but here DefaultMappedFile#getReadPosition asks for what
     * is committed whenever there is a pool. So nothing of such a file is ever dispatched, nor of those
     * behind it. (4.9.3's MappedFile asks whether the file has a buffer.)
     */
    @Override
    void awaitRoom() throws InterruptedException {
        long patience = System.currentTimeMillis() + 60_000;
        while (store.remainTransientStoreBufferNumbs() < 3) {
            if (System.currentTimeMillis() > patience) {
                throw new IllegalStateException("the engine does not get on with its commits");
            }
            Thread.sleep(1);
        }
    }

    @Override
    JsonArray epochs(String path, long cut) {
        EpochFileCache cache = new EpochFileCache(path);
        if (!cache.initCacheFromFile()) {
            throw new IllegalStateException("it cannot be read");
        }
        if (cut >= 0) {
            cache.truncateSuffixByOffset(cut);
        }
        JsonArray epochs = new JsonArray();
        for (EpochEntry entry : cache.getAllEntries()) {
            epochs.add(entry.getEpoch() + "-" + entry.getStartOffset());
        }
        return epochs;
    }

    @Override
    JsonElement compress(String how, String body) throws Exception {
        byte[] packed = CompressorFactory.getCompressor(CompressionType.of(how))
            .compress(Base64.getDecoder().decode(body), 5);
        return new JsonPrimitive(Base64.getEncoder().encodeToString(packed));
    }

    /** A delayed message goes to the schedule's topic in the broker here (HookUtils). */
    @Override
    void prepare(MessageExt message) {
        int kind = MessageSysFlag.getTransactionValue(message.getSysFlag());
        boolean counts = kind == MessageSysFlag.TRANSACTION_NOT_TYPE
            || kind == MessageSysFlag.TRANSACTION_COMMIT_TYPE;
        if (counts && message.getDelayTimeLevel() > 0) {
            int levels = config.getMessageDelayLevel().split(" ").length;
            message.setDelayTimeLevel(Math.min(message.getDelayTimeLevel(), levels));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
            MessageAccessor.putProperty(
                message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
            message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
            message.setQueueId(message.getDelayTimeLevel() - 1);
        }
    }

    @Override
    MessageFilter filter(String type, String expression) throws Exception {
        return new ExpressionMessageFilter(
            FilterAPI.build("topic", expression, type),
            ConsumerFilterManager.build("topic", "interop", expression, type, 1),
            new ConsumerFilterManager());
    }
}
