package interop;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
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
        broker.shutdown();
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
