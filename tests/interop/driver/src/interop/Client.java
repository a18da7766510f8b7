package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients of a broker and name server that is somebody else's, at one address. */
final class Client {
    private Client() {}

    /** For a machine that is busy: none of this is about what a client does that gets no answer. */
    static <T extends ClientConfig> T patient(T client) {
        client.setMqClientApiTimeout(Engine.PATIENCE_MILLIS);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(Engine.PATIENCE_MILLIS);
        }
        if (client instanceof DefaultMQPushConsumer) {
            // What a listener is still busy with would not be committed.
            ((DefaultMQPushConsumer) client).setAwaitTerminationMillisWhenShutdown(Engine.PATIENCE_MILLIS);
        }
        return client;
    }

    /**
     * What a push consumer gets until there are "count" messages, or two minutes are over: of "topic",
     * by tags ("expression") or SQL92 ("sql"), with "orderly" queue by queue in order; with "failing" it
     * wants each again, half an hour later. It has told the broker how far it came when this returns.
     */
    static JsonArray consume(JsonObject request) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        DefaultMQPushConsumer consumer = patient(new DefaultMQPushConsumer(
            request.get("group").getAsString(), hook(request), new AllocateMessageQueueAveragely()));
        consumer.setUseTLS(request.has("tls"));
        consumer.setNamesrvAddr(request.get("address").getAsString());
        consumer.setInstanceName(request.get("group").getAsString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String topic = request.get("topic").getAsString();
        if (request.has("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(request.get("sql").getAsString()));
        } else {
            consumer.subscribe(topic, request.get("expression").getAsString());
        }
        if (request.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                take(got, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                take(got, messages);
                if (request.has("failing")) {
                    context.setDelayLevelWhenNextConsume(16);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long end = System.currentTimeMillis() + 2 * Engine.PATIENCE_MILLIS;
        int count = request.get("count").getAsInt();
        synchronized (got) {
            while (got.size() < count && System.currentTimeMillis() < end) {
                got.wait(Math.max(end - System.currentTimeMillis(), 1));
            }
        }
        while (!isAtItsEnds(consumer, topic) && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        consumer.shutdown();
        synchronized (got) {
            return rows(got);
        }
    }

    /** Whether a consumer is done with all of a topic, also with what its expression passes over. */
    private static boolean isAtItsEnds(DefaultMQPushConsumer consumer, String topic) throws Exception {
        DefaultMQPushConsumerImpl impl = consumer.getDefaultMQPushConsumerImpl();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long done = impl.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY);
            if (done < impl.maxOffset(queue)) {
                return false;
            }
        }
        return true;
    }

    /** What signs requests with "accessKey" and "secretKey"; null without. */
    private static RPCHook hook(JsonObject request) {
        if (!request.has("accessKey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(
            request.get("accessKey").getAsString(), request.get("secretKey").getAsString()));
    }

    private static void take(List<MessageExt> got, List<MessageExt> messages) {
        synchronized (got) {
            got.addAll(messages);
            got.notifyAll();
        }
    }

    private static JsonArray rows(List<MessageExt> messages) {
        JsonArray rows = new JsonArray();
        for (MessageExt message : messages) {
            JsonObject row = new JsonObject();
            row.addProperty("physicalOffset", message.getCommitLogOffset());
            row.addProperty("queueId", message.getQueueId());
            row.addProperty("queueOffset", message.getQueueOffset());
            row.addProperty("body", Base64.getEncoder().encodeToString(message.getBody()));
            rows.add(row);
        }
        return rows;
    }

    /**
     * What a consumer that asks by itself is told of a topic: for each queue its ends, the offset at
     * "time", and the messages from "offset" on; then the messages of "key".
     */
    static JsonObject look(JsonObject request) throws Exception {
        DefaultMQPullConsumer consumer = patient(new DefaultMQPullConsumer("lookers"));
        consumer.setNamesrvAddr(request.get("address").getAsString());
        consumer.setInstanceName("lookers");
        consumer.start();
        try {
            String topic = request.get("topic").getAsString();
            Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
            JsonArray rows = new JsonArray();
            for (MessageQueue queue : queues) {
                JsonObject row = new JsonObject();
                row.addProperty("queueId", queue.getQueueId());
                row.addProperty("min", consumer.minOffset(queue));
                row.addProperty("max", consumer.maxOffset(queue));
                row.addProperty("at", consumer.searchOffset(queue, request.get("time").getAsLong()));
                PullResult pulled = consumer.pull(queue, "*", request.get("offset").getAsLong(), 32);
                row.addProperty("status", pulled.getPullStatus().name());
                row.addProperty("next", pulled.getNextBeginOffset());
                List<MessageExt> found = pulled.getMsgFoundList();
                row.add("messages", rows(found == null ? List.of() : found));
                rows.add(row);
            }
            JsonObject answer = new JsonObject();
            answer.add("queues", rows);
            String key = request.get("key").getAsString();
            answer.add("found", rows(
                consumer.queryMessage(topic, key, 32, 0, System.currentTimeMillis()).getMessageList()));
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * What becomes of messages that are sent, to their "queueId" where they have one: each the status
     * with its offsets, or what was thrown. With "batch" all are sent as one. One with a "state" is a
     * half message, of which its producer then says that.
     */
    static JsonArray send(JsonObject request) throws Exception {
        TransactionMQProducer producer = patient(new TransactionMQProducer("senders", hook(request)));
        producer.setUseTLS(request.has("tls"));
        producer.setNamesrvAddr(request.get("address").getAsString());
        producer.setInstanceName("senders" + System.nanoTime());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return LocalTransactionState.valueOf((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        JsonArray results = new JsonArray();
        try {
            List<Message> messages = new ArrayList<>();
            MessageQueue queue = null;
            for (JsonElement element : request.getAsJsonArray("messages")) {
                JsonObject row = element.getAsJsonObject();
                Message message = Node.message(row);
                queue = row.has("queueId") ? queueOf(producer, message.getTopic(), row) : null;
                messages.add(message);
                if (row.has("state")) {
                    String state = row.get("state").getAsString();
                    results.add(result(() -> producer.sendMessageInTransaction(message, state)));
                } else if (!request.has("batch")) {
                    MessageQueue to = queue;
                    results.add(result(() -> to == null ? producer.send(message) : producer.send(message, to)));
                }
            }
            if (request.has("batch")) {
                MessageQueue to = queue;
                results.add(result(() -> producer.send(messages, to)));
            }
        } finally {
            producer.shutdown();
        }
        return results;
    }

    private interface Sending {
        SendResult send() throws Exception;
    }

    private static JsonObject result(Sending sending) {
        JsonObject result = new JsonObject();
        try {
            SendResult sent = sending.send();
            result.addProperty("status", sent.getSendStatus().name());
            result.addProperty("msgId", sent.getOffsetMsgId());
            result.addProperty("queueOffset", sent.getQueueOffset());
        } catch (Exception refused) {
            result.addProperty("refused", refused.toString());
        }
        return result;
    }

    /** A queue of a topic, once the name server knows it. */
    private static MessageQueue queueOf(TransactionMQProducer producer, String topic, JsonObject row) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                    if (queue.getQueueId() == row.get("queueId").getAsInt()) {
                        return queue;
                    }
                }
                throw new IllegalStateException("there is no such queue");
            } catch (MQClientException unknown) {
                if (tries == 400) {
                    throw unknown;
                }
                Thread.sleep(50);
            }
        }
    }
}
