package interop;

import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.store.AllocateMappedFileService;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** How far the threads of a store have come. What lies on disk then does not depend on their pace. */
final class Settling {
    private final DefaultMessageStore store;
    /** What the dispatch was behind when it was last asked, and how often it had looked by then. */
    private long behind = -1;
    private long looks;

    Settling(DefaultMessageStore store) {
        this.store = store;
    }

    /** Of a broker's store, which others may stand before, as tiered storage does in 5.x. */
    static Settling of(MessageStore store) throws Exception {
        while (!(store instanceof DefaultMessageStore)) {
            store = (MessageStore) field(store.getClass().getSuperclass(), "next").get(store);
        }
        return new Settling((DefaultMessageStore) store);
    }

    /**
     * Waits until every entry is committed, every record has its unit and its index items, the log its
     * next files, and a full index file its header.
     */
    void await() throws Exception {
        long patience = System.currentTimeMillis() + Engine.PATIENCE_MILLIS;
        while (isCommitting() || store.dispatchBehindBytes() > 0 || isGrouping() || isMakingFiles() || isFlushingIndex()) {
            check(patience, "dispatch");
            Thread.sleep(1);
        }
    }

    /** As {@link #await}, and every delivery is counted: what is delivered can be seen before that. */
    void awaitQuiet() throws Exception {
        await();
        long patience = System.currentTimeMillis() + Engine.PATIENCE_MILLIS;
        while (isDelivering()) {
            check(patience, "deliveries");
            Thread.sleep(1);
        }
    }

    /**
     * As {@link #awaitQuiet}, and what the store does by the clock is at an end. A stop that is
     * interrupted does not wait for that: the checkpoint of 5.x would be written where it is no longer
     * mapped.
     */
    void awaitTheEnd() throws Exception {
        awaitQuiet();
        for (Field field : DefaultMessageStore.class.getDeclaredFields()) {
            if (field.getType() == ScheduledExecutorService.class) {
                field.setAccessible(true);
                ExecutorService tasks = (ExecutorService) field.get(store);
                tasks.shutdown();
                if (!tasks.awaitTermination(Engine.PATIENCE_MILLIS, TimeUnit.MILLISECONDS)) {
                    throw new IllegalStateException("the engine does not get on with its tasks");
                }
            }
        }
    }

    private static void check(long patience, String what) {
        if (System.currentTimeMillis() > patience) {
            throw new IllegalStateException("the engine does not get on with its " + what);
        }
    }

    /**
     * Whether the dispatch has looked at the log so often since it last got on, which is seen when this
     * is asked. It does all that it can each time: so once would be enough.
     */
    boolean isStuck(int often) throws Exception {
        Thread dispatch = thread(field(DefaultMessageStore.class, "reputMessageService").get(store));
        if (dispatch == null || dispatch.getState() == Thread.State.NEW) {
            return false;
        }
        // It sleeps for a millisecond before each look.
        ThreadInfo info = ManagementFactory.getThreadMXBean().getThreadInfo(dispatch.getId());
        long before = behind;
        behind = store.dispatchBehindBytes();
        if (behind <= 0) {
            return false;
        }
        if (info == null) {
            return !dispatch.isAlive();
        }
        if (behind != before) {
            looks = info.getWaitedCount();
        }
        return info.getWaitedCount() > looks + often;
    }

    /** Of a service; null before its start, which makes it and then has it run. */
    private static Thread thread(Object service) throws Exception {
        return (Thread) field(ServiceThread.class, "thread").get(service);
    }

    private boolean isCommitting() {
        return store.getCommitLog() instanceof DLedgerCommitLog
            && isCommitting(((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer());
    }

    /**
     * Whether entries wait to be committed. A member that is alone answers a put before that, and its
     * store has no end and no dispatch behind what is committed. The position is set after the index, and
     * is -1 while there is no entry at all.
     */
    static boolean isCommitting(DLedgerServer server) {
        DLedgerMmapFileStore entries = (DLedgerMmapFileStore) server.getdLedgerStore();
        return entries.getCommittedIndex() < entries.getLedgerEndIndex()
            || entries.getLedgerEndIndex() >= 0
                && entries.getCommittedPos() < entries.getDataFileList().getMaxWrotePosition();
    }

    /**
     * Whether units wait for RocksDB, to which a thread of its own brings them: between the two lists it
     * holds one by itself, and then it runs (RocksGroupCommitService of 5.x).
     */
    private boolean isGrouping() throws Exception {
        if (Engine.IS_4) {
            return false;
        }
        Object queues = field(DefaultMessageStore.class, "consumeQueueStore").get(store);
        if (!queues.getClass().getSimpleName().equals("RocksDBConsumeQueueStore")) {
            return false;
        }
        Object service = field(queues.getClass(), "groupCommitService").get(queues);
        Collection<?> asked = (Collection<?>) field(service.getClass(), "buffer").get(service);
        Collection<?> taken = (Collection<?>) field(service.getClass(), "requests").get(service);
        Thread thread = thread(service);
        return !asked.isEmpty()
            || thread != null && thread.getState() == Thread.State.RUNNABLE
            || !taken.isEmpty()
            || !asked.isEmpty();
    }

    /** Whether files of the log were asked for that are not there yet. */
    private boolean isMakingFiles() throws Exception {
        Object service = field(DefaultMessageStore.class, "allocateMappedFileService").get(store);
        Map<?, ?> asked = (Map<?, ?>) field(AllocateMappedFileService.class, "requestTable").get(service);
        for (Object request : asked.values()) {
            if (field(request.getClass(), "mappedFile").get(request) == null) {
                return true;
            }
        }
        return false;
    }

    /** A thread of its own does that (IndexService#getAndCreateLastIndexFile). */
    private static boolean isFlushingIndex() {
        return !threads("FlushIndexFileThread").isEmpty();
    }

    /** Whether a delay level is being looked at (ScheduleMessageService#executeOnTimeup). */
    private static boolean isDelivering() {
        return threads("ScheduleMessageTimerThread").stream()
            .flatMap(thread -> Arrays.stream(thread.getStackTrace()))
            .anyMatch(frame -> frame.getMethodName().equals("executeOnTimeup"));
    }

    private static List<Thread> threads(String name) {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        Thread[] threads = new Thread[2 * group.activeCount() + 16];
        int count = group.enumerate(threads);
        List<Thread> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            if (threads[number].getName().startsWith(name)) {
                found.add(threads[number]);
            }
        }
        return found;
    }

    static Field field(Class<?> owner, String name) throws NoSuchFieldException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
