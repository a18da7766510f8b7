package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.SubCommand;

/** {@code mqadmin}, and clients that stay connected while it looks at them. */
final class Admin {
    private static DefaultMQPushConsumer consumer;
    private static DefaultMQProducer producer;

    private Admin() {}

    /** What each of "commands" prints, a class of the tools and its arguments. */
    static JsonArray run(JsonObject request) throws Exception {
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, request.get("address").getAsString());
        PrintStream own = System.out;
        JsonArray texts = new JsonArray();
        try {
            for (JsonElement element : request.getAsJsonArray("commands")) {
                ByteArrayOutputStream printed = new ByteArrayOutputStream();
                System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
                try {
                    execute(element.getAsJsonArray());
                } catch (Exception problem) {
                    Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                    System.out.println("failed: " + cause);
                }
                texts.add(printed.toString(StandardCharsets.UTF_8));
            }
        } finally {
            System.setOut(own);
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
        }
        return texts;
    }

    private static void execute(JsonArray words) throws Exception {
        String name = "org.apache.rocketmq.tools.command." + words.get(0).getAsString();
        SubCommand command = (SubCommand) Class.forName(name).getDeclaredConstructor().newInstance();
        List<String> arguments = new ArrayList<>();
        for (int n = 1; n < words.size(); n++) {
            arguments.add(words.get(n).getAsString());
        }
        Options options = command.buildCommandlineOptions(new Options());
        CommandLine line = new PosixParser().parse(options, arguments.toArray(new String[0]));
        command.execute(line, options, null);
    }

    /**
     * A consumer of "topic" and a producer, as "group" each; returns when the consumer has "count", and is
     * done with them.
     */
    static JsonObject connect(JsonObject request) throws Exception {
        String group = request.get("group").getAsString();
        String address = request.get("address").getAsString();
        int[] got = {0};
        producer = Client.patient(new DefaultMQProducer(group));
        producer.setNamesrvAddr(address);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("watched");
        producer.start();
        producer.fetchPublishMessageQueues(request.get("topic").getAsString());
        consumer = Client.patient(new DefaultMQPushConsumer(group));
        consumer.setNamesrvAddr(address);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("watched");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.get("topic").getAsString(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (got) {
                got[0] += messages.size();
                got.notifyAll();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + 2 * Engine.PATIENCE_MILLIS;
        synchronized (got) {
            while (got[0] < request.get("count").getAsInt() && System.currentTimeMillis() < end) {
                got.wait(Math.max(end - System.currentTimeMillis(), 1));
            }
        }
        while (!(isKnown(MixAll.getRetryTopic(group)) && hasItsQueues()) && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        return new JsonObject();
    }

    /** Whether the name server knows a topic: that of a group's retries the broker makes when it first
     * hears of the group, and the consumer would ask for it again half a minute later. */
    private static boolean isKnown(String topic) {
        try {
            return !consumer.fetchSubscribeMessageQueues(topic).isEmpty();
        } catch (MQClientException unknown) {
            return false;
        }
    }

    /** Whether the consumer has been given the queues that it knows, which a thread of its own does, and
     * nothing of them is left to do. */
    private static boolean hasItsQueues() {
        RebalanceImpl rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        Map<MessageQueue, ProcessQueue> given = rebalance.getProcessQueueTable();
        return rebalance.getTopicSubscribeInfoTable().values().stream().allMatch(given.keySet()::containsAll)
            && given.values().stream().allMatch(one -> one.getMsgCount().get() == 0);
    }

    static JsonObject disconnect() throws InterruptedException {
        Stopping.hurried(() -> {
            consumer.shutdown();
            producer.shutdown();
        });
        return new JsonObject();
    }
}
