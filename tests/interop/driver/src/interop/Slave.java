package interop;

import com.google.gson.JsonObject;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A broker on loopback that is the slave of somebody else's master, whom its name server tells it. */
final class Slave {
    private final BrokerController broker;

    Slave(String root, JsonObject settings, String nameServer, String name) throws Exception {
        Path own = Files.createDirectories(Path.of(root).resolveSibling("slave-home"));
        MessageStoreConfig store = Engine.config(root, settings);
        store.setBrokerRole(BrokerRole.SLAVE);
        // Else it says nothing, and so gets nothing, for its first five seconds.
        store.setHaSendHeartbeatInterval(200);
        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(nameServer);
        config.setBrokerName(name);
        config.setBrokerId(1);
        config.setBrokerIP1("127.0.0.1");
        config.setRocketmqHome(own.toString());
        Node.withoutSpinning(config);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Node.freePort());
        broker = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException("the slave does not start");
        }
        broker.start();
        if (settings.has("haMasterAddress")) {
            // 5.x hears of it before there is anybody who would connect.
            broker.getMessageStore().updateHaMasterAddress(store.getHaMasterAddress());
        }
    }

    /** Waits until its log ends there, and all of it is dispatched; how far it has come. */
    long await(long end, long millis) throws InterruptedException {
        long patience = System.currentTimeMillis() + millis;
        while (broker.getMessageStore().getMaxPhyOffset() < end || broker.getMessageStore().dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > patience) {
                break;
            }
            Thread.sleep(20);
        }
        return broker.getMessageStore().getMaxPhyOffset();
    }

    void stop() throws Exception {
        Stopping.stop(broker);
    }
}
