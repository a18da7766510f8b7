package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.logfile.MappedFile;
import org.apache.rocketmq.store.timer.Slot;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerLog;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerWheel;

/** The timer's files as 5.3.3 reads them: slots in use, units in order, the check point. */
final class TimerRows {
    private static final int SLOTS = TimerMessageStore.TIMER_WHEEL_TTL_DAY * TimerMessageStore.DAY_SECS;

    private TimerRows() {}

    static JsonArray of(MessageStoreConfig config) throws Exception {
        String root = config.getStorePathRootDir();
        JsonArray rows = new JsonArray();
        slots(new TimerWheel(TimerMessageStore.getTimerWheelPath(root), SLOTS, config.getTimerPrecisionMs()),
            config.getTimerPrecisionMs(), rows);
        TimerLog log =
            new TimerLog(TimerMessageStore.getTimerLogPath(root), config.getMappedFileSizeTimerLog());
        if (log.load()) {
            for (MappedFile file : log.getMappedFileQueue().getMappedFiles()) {
                units(file, rows);
            }
        }
        TimerCheckpoint checkpoint = new TimerCheckpoint(root + "/config/timercheck");
        JsonObject row = new JsonObject();
        row.addProperty("kind", "timercheck");
        row.addProperty("lastReadTimeMs", checkpoint.getLastReadTimeMs());
        row.addProperty("lastTimerLogFlushPos", checkpoint.getLastTimerLogFlushPos());
        row.addProperty("lastTimerQueueOffset", checkpoint.getLastTimerQueueOffset());
        row.addProperty("masterTimerQueueOffset", checkpoint.getMasterTimerQueueOffset());
        rows.add(row);
        return rows;
    }

    private static void slots(TimerWheel wheel, int precision, JsonArray rows) {
        for (long index = 0; index < 2L * SLOTS; index++) {
            Slot slot = wheel.getRawSlot(index * precision);
            if (slot.timeMs == 0) {
                continue;
            }
            JsonObject row = new JsonObject();
            row.addProperty("kind", "slot");
            row.addProperty("index", index);
            row.addProperty("timeMs", slot.timeMs);
            row.addProperty("firstPos", slot.firstPos);
            row.addProperty("lastPos", slot.lastPos);
            row.addProperty("num", slot.num);
            rows.add(row);
        }
    }

    private static void units(MappedFile file, JsonArray rows) {
        SelectMappedBufferResult read = file.selectMappedBuffer(0, file.getFileSize());
        ByteBuffer bytes = read.getByteBuffer();
        for (int at = 0; at + TimerLog.UNIT_SIZE <= read.getSize(); at += TimerLog.UNIT_SIZE) {
            bytes.position(at);
            int size = bytes.getInt();
            long prevPos = bytes.getLong();
            int magic = bytes.getInt();
            if (size != TimerLog.UNIT_SIZE || !TimerMessageStore.isMagicOK(magic)) {
                break;
            }
            JsonObject row = new JsonObject();
            row.addProperty("kind", "timer_unit");
            row.addProperty("position", file.getFileFromOffset() + at);
            row.addProperty("prevPos", prevPos);
            row.addProperty("magic", magic);
            row.addProperty("currWriteTime", bytes.getLong());
            row.addProperty("delayedTime", bytes.getInt());
            row.addProperty("offsetPy", bytes.getLong());
            row.addProperty("sizePy", bytes.getInt());
            row.addProperty("topicHash", bytes.getInt());
            rows.add(row);
        }
        read.release();
    }
}
