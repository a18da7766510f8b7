package interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Clients that send or consume as fast as a server lets them. */
final class Load {
    private static int runs;

    private Load() {}

    /**
     * Messages of "size" bytes by "producers", each with a connection and a thread, for "seconds"; with
     * "batch" so many at once. What was done: "messages", "seconds", and milliseconds of a send that half
     * and 99 of 100 did not exceed.
     */
    static JsonObject send(JsonObject request) throws Exception {
        int producers = request.get("producers").getAsInt();
        int batch = request.get("batch").getAsInt();
        byte[] body = new byte[request.get("size").getAsInt()];
        Arrays.fill(body, (byte) 'x');
        String topic = request.get("topic").getAsString();
        List<DefaultMQProducer> clients = new ArrayList<>();
        for (int n = 0; n < producers; n++) {
            DefaultMQProducer client = new DefaultMQProducer("load");
            client.setNamesrvAddr(request.get("address").getAsString());
            client.setInstanceName("load" + runs++);
            client.setSendMsgTimeout(30_000);
            client.start();
            awaitRoute(client, topic);
            clients.add(client);
        }
        long[][] times = new long[producers][];
        List<Thread> threads = new ArrayList<>();
        AtomicInteger failures = new AtomicInteger();
        long start = System.nanoTime();
        long end = start + (long) (request.get("seconds").getAsDouble() * 1e9);
        for (int n = 0; n < producers; n++) {
            int number = n;
            threads.add(new Thread(() -> {
                times[number] = sendUntil(clients.get(number), topic, body, batch, end, failures);
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        clients.forEach(DefaultMQProducer::shutdown);
        if (failures.get() > 0) {
            throw new IllegalStateException(failures + " sends failed");
        }
        long[] all = Arrays.stream(times).flatMapToLong(Arrays::stream).sorted().toArray();
        JsonObject answer = new JsonObject();
        answer.addProperty("messages", (long) all.length * Math.max(batch, 1));
        answer.addProperty("seconds", seconds);
        answer.addProperty("p50", all[all.length / 2] / 1e6);
        answer.addProperty("p99", all[all.length * 99 / 100] / 1e6);
        return answer;
    }

    /** Returns when the name server knows the topic. */
    private static void awaitRoute(DefaultMQProducer client, String topic) throws Exception {
        long end = System.currentTimeMillis() + 150_000;
        while (true) {
            try {
                client.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException unknown) {
                if (System.currentTimeMillis() > end) {
                    throw unknown;
                }
                Thread.sleep(200);
            }
        }
    }

    private static long[] sendUntil(
        DefaultMQProducer client, String topic, byte[] body, int batch, long end, AtomicInteger failures) {
        long[] times = new long[1 << 20];
        int count = 0;
        while (count < times.length && System.nanoTime() < end) {
            long before = System.nanoTime();
            try {
                SendStatus status;
                if (batch > 0) {
                    List<Message> messages = new ArrayList<>();
                    for (int n = 0; n < batch; n++) {
                        messages.add(new Message(topic, "tag", body));
                    }
                    status = client.send(messages).getSendStatus();
                } else {
                    status = client.send(new Message(topic, "tag", body)).getSendStatus();
                }
                if (status != SendStatus.SEND_OK) {
                    failures.incrementAndGet();
                }
            } catch (Exception problem) {
                problem.printStackTrace();
                failures.incrementAndGet();
                break;
            }
            times[count++] = System.nanoTime() - before;
        }
        return Arrays.copyOf(times, count);
    }

    /** A push consumer of a group of its own, from the first message on, until it has "count". */
    static JsonObject consume(JsonObject request) throws Exception {
        int count = request.get("count").getAsInt();
        AtomicInteger got = new AtomicInteger();
        long[] first = {0};
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load" + runs++);
        consumer.setNamesrvAddr(request.get("address").getAsString());
        consumer.setInstanceName("load" + runs++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.setPullThresholdForQueue(10_000);
        consumer.subscribe(request.get("topic").getAsString(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (first) {
                if (first[0] == 0) {
                    first[0] = System.nanoTime();
                }
                if (got.addAndGet(messages.size()) >= count) {
                    first.notifyAll();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + 120_000;
        long end;
        synchronized (first) {
            while (got.get() < count && System.currentTimeMillis() < deadline) {
                first.wait(1000);
            }
            end = System.nanoTime();
        }
        consumer.shutdown();
        JsonObject answer = new JsonObject();
        answer.addProperty("messages", got.get());
        answer.addProperty("seconds", (end - first[0]) / 1e9);
        return answer;
    }
}
