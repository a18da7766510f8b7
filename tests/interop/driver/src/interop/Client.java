package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Clients of a broker and name server that is somebody else's, at one address. */
final class Client {
    private Client() {}

    /**
     * What a push consumer gets until there are "count" messages, or half a minute is over: of "topic",
     * by tags ("expression") or SQL92 ("sql"), with "orderly" queue by queue in order. It has told the
     * broker how far it came when this returns.
     */
    static JsonArray consume(JsonObject request) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.get("group").getAsString());
        consumer.setNamesrvAddr(request.get("address").getAsString());
        consumer.setInstanceName(request.get("group").getAsString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(3_000);
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
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long end = System.currentTimeMillis() + 30_000;
        int count = request.get("count").getAsInt();
        synchronized (got) {
            while (got.size() < count && System.currentTimeMillis() < end) {
                got.wait(Math.max(end - System.currentTimeMillis(), 1));
            }
        }
        consumer.shutdown();
        synchronized (got) {
            return rows(got);
        }
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
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("lookers");
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

    /** What becomes of a message that is sent: the status, or the class and code of what was thrown. */
    static JsonObject send(JsonObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(request.get("address").getAsString());
        producer.setInstanceName("senders");
        producer.start();
        JsonObject answer = new JsonObject();
        try {
            Message message = new Message(request.get("topic").getAsString(), new byte[] {1});
            answer.addProperty("status", producer.send(message).getSendStatus().name());
        } catch (Exception refused) {
            answer.addProperty("refused", refused.toString());
        } finally {
            producer.shutdown();
        }
        return answer;
    }
}
