package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server and a broker on loopback, with a producer and push consumers. */
final class Node {
    private static final String NAME = "interop";
    private static int portsAsked;

    private final NamesrvController nameServer;
    private final BrokerController broker;
    private final String address;
    private final List<String> places;
    private DefaultMQProducer producer;

    Node(String root, JsonObject settings) throws Exception {
        // As BrokerStartup does. Without it a name server takes a broker's first words for those of a
        // very old one, and knows none of its topics until it says them again, ten seconds later.
        System.setProperty(
            RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Path own = Files.createDirectories(Path.of(root).resolveSibling("namesrv"));
        NamesrvConfig names = new NamesrvConfig();
        names.setKvConfigPath(own + "/kvConfig.json");
        names.setConfigStorePath(own + "/namesrv.properties");
        NettyServerConfig namesServer = new NettyServerConfig();
        namesServer.setListenPort(freePort());
        address = "127.0.0.1:" + namesServer.getListenPort();
        nameServer = new NamesrvController(names, namesServer);
        if (!nameServer.initialize()) {
            throw new IllegalStateException("the name server does not start");
        }
        nameServer.start();

        MessageStoreConfig store = Engine.config(root, settings);
        if (!settings.has("timerFlushIntervalMs")) {
            // 5.x compares its wheel of 38 MB with the file byte by byte each second, else, which takes
            // half of that.
            Properties seldom = new Properties();
            seldom.setProperty("timerFlushIntervalMs", "3600000");
            MixAll.properties2Object(seldom, store);
        }
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(address);
        config.setBrokerName(NAME);
        config.setBrokerIP1("127.0.0.1");
        config.setRocketmqHome(own.toString());
        // 5.x gathers what ends transactions for three seconds, else; 4.9.3 does not know the name.
        Properties hurry = new Properties();
        hurry.setProperty("transactionOpBatchInterval", "100");
        // Nor does anybody ask for a transaction's end here, as is done every minute, else.
        hurry.setProperty("transactionCheckInterval", "86400000");
        if (settings.has("aclHome")) {
            // With accounts: conf/plain_acl.yml below.
            System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, settings.get("aclHome").getAsString());
            hurry.setProperty("aclEnable", "true");
        }
        MixAll.properties2Object(hurry, config);
        withoutSpinning(config);
        // What stands between the store and its users has settings of its own, and asks for them below.
        Properties given = new Properties();
        settings.entrySet().forEach(one -> given.setProperty(one.getKey(), one.getValue().getAsString()));
        config.setMessageStorePlugIn(given.getProperty("messageStorePlugIn", ""));
        // Else it refuses what has waited for 200 milliseconds, as happens on a busy machine.
        config.setBrokerFastFailureEnable(false);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        // Between the two ports that it has anyhow.
        store.setHaListenPort(server.getListenPort() - 1);
        places = List.of("127.0.0.1:" + server.getListenPort(), "127.0.0.1:" + store.getHaListenPort());
        broker = new BrokerController(config, server, new NettyClientConfig(), store);
        broker.getConfiguration().registerConfig(given);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not start");
        }
        broker.start();
    }

    /**
     * A thread of 5.3.3's brokers spins from the start on until it first writes numbers of transactions, which
     * is three seconds later, else; from then on it waits. 4.9.3 does not know the name.
     */
    static void withoutSpinning(BrokerConfig config) {
        Properties soon = new Properties();
        soon.setProperty("transactionMetricFlushInterval", "100");
        MixAll.properties2Object(soon, config);
    }

    /**
     * A port with two free ones below it, which a broker takes for its slaves and for itself. They are
     * taken a second later only: so they are none that the system gives to others meanwhile, which begin
     * at 32768, and of a range of this process.
     */
    static synchronized int freePort() throws IOException {
        int first = 10_000 + (int) (ProcessHandle.current().pid() % 400) * 50;
        for (int tries = 0; tries < 16; tries++) {
            int port = first + 2 + 3 * (portsAsked++ % 16);
            try (ServerSocket one = new ServerSocket(port);
                ServerSocket second = new ServerSocket(port - 1);
                ServerSocket third = new ServerSocket(port - 2)) {
                return port;
            } catch (IOException taken) {
                // The next pair is tried.
            }
        }
        throw new IOException("no port is free from " + first + " on");
    }

    /** Where clients find the broker. */
    String address() {
        return address;
    }

    BrokerController broker() {
        return broker;
    }

    /** Where the broker itself answers, and where its slaves connect. */
    List<String> places() {
        return places;
    }

    /** The producer, once the name server knows the topic: a client that asked before would wait long. */
    private DefaultMQProducer producer(String topic) throws Exception {
        if (producer == null) {
            producer = Client.patient(new DefaultMQProducer("interop-producer"));
            producer.setNamesrvAddr(address);
            producer.start();
        }
        for (int tries = 0; tries < 2000; tries++) {
            try {
                if (!producer.fetchPublishMessageQueues(topic).isEmpty()) {
                    break;
                }
            } catch (MQClientException unknown) {
                Thread.sleep(50);
            }
        }
        return producer;
    }

    static Message message(JsonObject row) {
        Message message = new Message(
            row.get("topic").getAsString(), Base64.getDecoder().decode(row.get("body").getAsString()));
        for (Map.Entry<String, JsonElement> entry : row.getAsJsonObject("properties").entrySet()) {
            MessageAccessor.putProperty(message, entry.getKey(), entry.getValue().getAsString());
        }
        return message;
    }

    /** Half messages, each with what its producer then says: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW. */
    JsonArray transact(JsonArray rows) throws Exception {
        TransactionMQProducer transactional = Client.patient(new TransactionMQProducer("interop-transactions"));
        transactional.setNamesrvAddr(address);
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        transactional.start();
        JsonArray statuses = new JsonArray();
        for (JsonElement row : rows) {
            String state = row.getAsJsonObject().get("state").getAsString();
            Message message = message(row.getAsJsonObject());
            statuses.add(transactional
                .sendMessageInTransaction(message, LocalTransactionState.valueOf(state))
                .getSendStatus().name());
        }
        transactional.shutdown();
        return statuses;
    }

    JsonArray send(JsonArray rows) throws Exception {
        JsonArray results = new JsonArray();
        for (JsonElement element : rows) {
            JsonObject row = element.getAsJsonObject();
            String topic = row.get("topic").getAsString();
            Message message = message(row);
            SendResult sent = producer(topic).send(message, new MessageQueue(topic, NAME, row.get("queueId").getAsInt()));
            JsonObject result = new JsonObject();
            result.addProperty("status", sent.getSendStatus().name());
            result.addProperty("msgId", sent.getOffsetMsgId());
            result.addProperty("queueOffset", sent.getQueueOffset());
            results.add(result);
        }
        return results;
    }

    /**
     * What a push consumer of a group gets, until there are "count" messages or time is up. With
     * "failing" it wants each message again, a second later, when it gets it first.
     */
    JsonArray consume(JsonObject request) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        String topic = request.get("topic").getAsString();
        boolean failing = request.get("failing").getAsBoolean();
        producer(topic);
        DefaultMQPushConsumer consumer = Client.patient(new DefaultMQPushConsumer(request.get("group").getAsString()));
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000);
        consumer.subscribe(topic, request.get("expression").getAsString());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (got) {
                got.addAll(messages);
                got.notifyAll();
            }
            if (failing && messages.get(0).getReconsumeTimes() == 0) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + 2 * Engine.PATIENCE_MILLIS;
        int count = request.get("count").getAsInt();
        synchronized (got) {
            while (got.size() < count && System.currentTimeMillis() < end) {
                got.wait(end - System.currentTimeMillis());
            }
        }
        List<MessageExt> consumed;
        synchronized (got) {
            consumed = List.copyOf(got);
        }
        awaitCommit(consumer, topic, consumed);
        consumer.shutdown();
        JsonArray rows = new JsonArray();
        synchronized (got) {
            for (MessageExt message : got) {
                JsonObject row = new JsonObject();
                row.addProperty("physicalOffset", message.getCommitLogOffset());
                row.addProperty("topic", message.getTopic());
                row.addProperty("queueId", message.getQueueId());
                row.addProperty("queueOffset", message.getQueueOffset());
                row.addProperty("reconsumeTimes", message.getReconsumeTimes());
                row.addProperty("body", Base64.getEncoder().encodeToString(message.getBody()));
                rows.add(row);
            }
        }
        return rows;
    }

    /**
     * Waits until the broker has noted what was consumed. A consumer that stops tells it without waiting
     * for an answer, and closes the connection.
     */
    private void awaitCommit(DefaultMQPushConsumer consumer, String topic, List<MessageExt> got) throws Exception {
        String place = topic + "@" + consumer.getConsumerGroup();
        for (int tries = 0; tries < 2400; tries++) {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            Map<Integer, Long> noted =
                broker.getConsumerOffsetManager().getOffsetTable().getOrDefault(place, new ConcurrentHashMap<>());
            if (got.stream().allMatch(m -> noted.getOrDefault(m.getQueueId(), 0L) > m.getQueueOffset())) {
                return;
            }
            Thread.sleep(25);
        }
        throw new IllegalStateException("the broker does not note what " + place + " has consumed");
    }

    /** "topic@group" → queue id → offset, as the broker has it now. */
    JsonElement committed() {
        return Main.GSON.toJsonTree(broker.getConsumerOffsetManager().getOffsetTable());
    }

    void stop() throws Exception {
        if (producer != null) {
            producer.shutdown();
        }
        Stopping.stop(broker);
        Stopping.hurried(nameServer::shutdown);
    }
}
