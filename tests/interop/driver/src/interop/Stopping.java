package interop;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.stream.Stream;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;

/**
 * A clean stop. The first blocking step of a store's is a sleep of a second or three, by which its
 * scheduled tasks may end; they are awaited here, and the interrupt cuts that short, as the engine
 * provides for.
 */
final class Stopping {
    private Stopping() {
    }

    static void stop(DefaultMessageStore store) throws Exception {
        new Settling(store).awaitTheEnd();
        Thread.currentThread().interrupt();
        store.shutdown();
        Thread.interrupted();
    }

    /** Of a broker, which stops its store amid all else: so it gets one that stops as above. */
    static void stop(BrokerController broker) throws Exception {
        MessageStore store = broker.getMessageStore();
        Settling.of(store).awaitQuiet();
        if (store instanceof DefaultMessageStore) {
            broker.setMessageStore(hurried((DefaultMessageStore) store));
        }
        hurried(broker::shutdown);
    }

    /**
     * Of what speaks with the network. Each server has a thread that looks every three seconds whether it
     * is to end, and its stop waits for that; and a client's waits for one that is to set offsets and
     * sleeps ten seconds before it does. An interrupt has either go on at once.
     */
    static void hurried(Runnable stop) throws InterruptedException {
        Thread alarm = new Thread(Stopping::wake, "alarm");
        alarm.start();
        try {
            stop.run();
        } finally {
            alarm.interrupt();
            alarm.join();
        }
    }

    private static void wake() {
        try {
            while (true) {
                Thread.sleep(50);
                Thread.getAllStackTraces().forEach((one, frames) -> {
                    boolean isMeant = one.getName().contains("NettyEventExecutor")
                        || Stream.of(frames).anyMatch(frame -> frame.getMethodName().equals("resetOffset"));
                    if (isMeant && one.getState() == Thread.State.TIMED_WAITING) {
                        one.interrupt();
                    }
                });
            }
        } catch (InterruptedException stopped) {
            // All have ended.
        }
    }

    private static MessageStore hurried(DefaultMessageStore store) {
        Class<?>[] types = {MessageStore.class};
        return (MessageStore) Proxy.newProxyInstance(
            Stopping.class.getClassLoader(), types, (self, method, arguments) -> {
                if (method.getName().equals("shutdown")) {
                    stop(store);
                    return null;
                }
                try {
                    return method.invoke(store, arguments);
                } catch (InvocationTargetException thrown) {
                    throw thrown.getCause();
                }
            });
    }
}
