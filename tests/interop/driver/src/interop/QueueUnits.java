package interop;

import java.nio.ByteBuffer;

import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** A queue's ends and units, in files or, of 5.x, in RocksDB, which 4.9.3 has no name for. */
final class QueueUnits {
    private final Object queue;

    QueueUnits(Object queue) {
        this.queue = queue;
    }

    long min() {
        return end("getMinOffsetInQueue");
    }

    long max() {
        return end("getMaxOffsetInQueue");
    }

    long maxPhysic() {
        return end("getMaxPhysicOffset");
    }

    /** Physical offset, size and tags code; null where there is no unit. */
    long[] unit(long at) {
        if (!(queue instanceof ConsumeQueue)) {
            Object unit = call(queue, "get", at);
            return unit == null ? null : new long[] {
                (Long) call(unit, "getPos"), (Integer) call(unit, "getSize"), (Long) call(unit, "getTagsCode")};
        }
        SelectMappedBufferResult part = ((ConsumeQueue) queue).getIndexBuffer(at);
        if (part == null) {
            return null;
        }
        try {
            ByteBuffer unit = part.getByteBuffer();
            return new long[] {unit.getLong(), unit.getInt(), unit.getLong()};
        } finally {
            part.release();
        }
    }

    private long end(String name) {
        return (Long) call(queue, name);
    }

    private static Object call(Object target, String name, long... values) {
        try {
            return values.length == 0
                ? target.getClass().getMethod(name).invoke(target)
                : target.getClass().getMethod(name, long.class).invoke(target, values[0]);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
