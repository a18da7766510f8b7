package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.tieredstore.TieredMessageStore;
import org.apache.rocketmq.tieredstore.file.FlatMessageFile;
import org.apache.rocketmq.tieredstore.index.IndexItem;

/** What a broker with tiered storage gives back of it; of 5.x only. */
public final class Engine5Tiered {
    private Engine5Tiered() {}

    /** Answers "tieredEnds", "tieredPull" and "tieredQuery". */
    public static JsonElement answer(BrokerController broker, JsonObject request) throws Exception {
        TieredMessageStore store = (TieredMessageStore) broker.getMessageStore();
        String topic = request.get("topic").getAsString();
        switch (request.get("do").getAsString()) {
            case "tieredEnds":
                return ends(store, topic, request.get("queueId").getAsInt());
            case "tieredPull":
                return pull(store, topic, request.get("queueId").getAsInt());
            default:
                return query(store, topic, request.get("key").getAsString());
        }
    }

    /** Queue offsets that are uploaded: from, to (not included); null: nothing is. */
    private static JsonElement ends(TieredMessageStore store, String topic, int queueId) {
        FlatMessageFile file = file(store, topic, queueId);
        if (file == null || !file.isFlatFileInit()) {
            return null;
        }
        JsonArray ends = new JsonArray();
        ends.add(new JsonPrimitive(file.getConsumeQueueMinOffset()));
        ends.add(new JsonPrimitive(file.getConsumeQueueCommitOffset()));
        return ends;
    }

    /**
     * What the index has for a key, by queue and place. Of the records themselves nothing is asked: a
     * broker reads several at once through one channel, and may give back others.
     */
    private static JsonElement query(TieredMessageStore store, String topic, String key) throws Exception {
        List<IndexItem> found =
            new ArrayList<>(store.getIndexService().queryAsync(topic, key, 512, 0, Long.MAX_VALUE).get());
        found.sort(Comparator.comparing(IndexItem::getQueueId).thenComparing(IndexItem::getOffset));
        JsonArray rows = new JsonArray();
        for (IndexItem item : found) {
            JsonObject row = new JsonObject();
            row.addProperty("queueId", item.getQueueId());
            row.addProperty("physicalOffset", item.getOffset());
            row.addProperty("size", item.getSize());
            rows.add(row);
        }
        return rows;
    }

    private static FlatMessageFile file(TieredMessageStore store, String topic, int queueId) {
        String name = store.getBrokerName();
        return store.getFlatFileStore().getFlatFile(new MessageQueue(topic, name, queueId));
    }

    /** All that is uploaded of a queue, as consumers get it of a broker that reads nowhere else. */
    private static JsonElement pull(TieredMessageStore store, String topic, int queueId) throws Exception {
        FlatMessageFile file = file(store, topic, queueId);
        JsonArray all = new JsonArray();
        long at = file.getConsumeQueueMinOffset();
        while (at < file.getConsumeQueueCommitOffset()) {
            GetMessageResult found = store.getMessage("readers", topic, queueId, at, 16, null);
            all.addAll(rows(found.getMessageBufferList()));
            if (found.getNextBeginOffset() <= at) {
                throw new IllegalStateException(found.getStatus() + " at " + at);
            }
            at = found.getNextBeginOffset();
        }
        return all;
    }

    /** Of each record its queue offset, its place in the uploaded log, and what all its bytes come to. */
    private static JsonArray rows(List<ByteBuffer> records) throws Exception {
        JsonArray rows = new JsonArray();
        for (ByteBuffer record : records) {
            byte[] bytes = new byte[record.remaining()];
            record.duplicate().get(bytes);
            JsonObject row = new JsonObject();
            row.addProperty("queueOffset", record.getLong(record.position() + 20));
            row.addProperty("physicalOffset", record.getLong(record.position() + 28));
            row.addProperty("sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)));
            rows.add(row);
        }
        return rows;
    }
}
