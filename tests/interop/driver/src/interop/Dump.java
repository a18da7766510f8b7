package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.PrintWriter;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** What the engine says of a store, in the rows of the golden data. */
final class Dump {
    private static final int BLANK_MAGIC_CODE = -875286124;
    /** What a DLedger log has before each record: an entry's header, that begins with its magic code. */
    private static final int ENTRY_MAGIC_CODE = 1;
    private static final int ENTRY_HEADER = 48;
    private static final int ENTRY_BLANK_MAGIC_CODE = -1;
    private static final int PHYSICAL_OFFSET_POSITION = 28;
    private static final int MOST = 5;

    /** Places of messages, and pairs of topic and key, of which there are rows. */
    final Set<Long> messagesWritten = new HashSet<>();
    final Set<List<String>> keysAsked = new LinkedHashSet<>();
    private final DefaultMessageStore store;

    Dump(DefaultMessageStore store) {
        this.store = store;
    }

    JsonObject write(Path to) throws Exception {
        int[] counts = new int[2];
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(to, StandardCharsets.UTF_8))) {
            print(out, logEnds());
            List<MessageExt> messages = log(out);
            counts[0] = messages.size();
            counts[1] = queues(out);
            queries(out, messages);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("messages", counts[0]);
        answer.addProperty("units", counts[1]);
        return answer;
    }

    /** Where log and queues begin and end: of "write" what reads no message. */
    JsonArray ends() {
        JsonArray rows = new JsonArray();
        rows.add(logEnds());
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        for (String topic : new TreeSet<>(table.keySet())) {
            for (Map.Entry<Integer, ?> entry : new TreeMap<>(table.get(topic)).entrySet()) {
                rows.add(queueEnds(topic, entry.getKey(), new QueueUnits(entry.getValue())));
            }
        }
        return rows;
    }

    private JsonObject logEnds() {
        JsonObject row = row("store");
        row.addProperty("minPhyOffset", store.getMinPhyOffset());
        row.addProperty("maxPhyOffset", store.getMaxPhyOffset());
        return row;
    }

    private static JsonObject queueEnds(String topic, int queueId, QueueUnits queue) {
        JsonObject row = placed("queue", topic, queueId);
        row.addProperty("minOffset", queue.min());
        row.addProperty("maxOffset", queue.max());
        row.addProperty("maxPhysicOffset", queue.maxPhysic());
        return row;
    }

    private static JsonObject row(String kind) {
        JsonObject row = new JsonObject();
        row.addProperty("kind", kind);
        return row;
    }

    private static void print(PrintWriter out, JsonObject row) {
        out.println(Main.GSON.toJson(row));
    }

    /** Rows of messages and blanks in log order, up to what the engine cannot read. */
    private List<MessageExt> log(PrintWriter out) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long at = Math.max(store.getMinPhyOffset(), 0);
        while (at < store.getMaxPhyOffset()) {
            int size;
            int magic;
            SelectMappedBufferResult head = store.getCommitLog().getMessage(at, 8);
            if (head == null) {
                break;
            }
            size = head.getByteBuffer().getInt();
            magic = head.getByteBuffer().getInt();
            head.release();
            if (size == ENTRY_MAGIC_CODE) {
                at += ENTRY_HEADER;
                size = magic - ENTRY_HEADER;
            } else if (size == ENTRY_BLANK_MAGIC_CODE) {
                size = magic;
                magic = BLANK_MAGIC_CODE;
            }
            if (size <= 0) {
                break;
            }
            if (magic == BLANK_MAGIC_CODE) {
                JsonObject blank = row("blank");
                blank.addProperty("physicalOffset", at);
                blank.addProperty("size", size);
                print(out, blank);
            } else {
                MessageExt message = look(at, size);
                if (message == null) {
                    break;
                }
                messages.add(message);
                messagesWritten.add(at);
                print(out, messageRow(message, at, size));
                message.setBody(null); // keys are all that is still asked of it
            }
            at += size;
        }
        return messages;
    }

    /** The message at an offset, as lookMessageByOffset gives it; null when there is none. */
    JsonObject messageAt(long offset) throws Exception {
        MessageExt message = store.lookMessageByOffset(offset);
        return message == null ? null : messageRow(message, offset, message.getStoreSize());
    }

    private MessageExt look(long at, int size) {
        SelectMappedBufferResult part = store.getCommitLog().getMessage(at, size);
        if (part == null) {
            return null;
        }
        try {
            // The body as it is stored: not decompressed.
            return MessageDecoder.decode(part.getByteBuffer(), true, false);
        } finally {
            part.release();
        }
    }

    private static JsonObject messageRow(MessageExt message, long at, int size) throws Exception {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        JsonObject row = row("message");
        row.addProperty("physicalOffset", at);
        row.addProperty("size", size);
        row.addProperty("topic", message.getTopic());
        row.addProperty("queueId", message.getQueueId());
        row.addProperty("queueOffset", message.getQueueOffset());
        row.addProperty("flag", message.getFlag());
        row.addProperty("sysFlag", message.getSysFlag());
        row.addProperty("bodyCRC", message.getBodyCRC());
        row.addProperty("bornTimestamp", message.getBornTimestamp());
        row.addProperty("bornHost", host(message.getBornHost()));
        row.addProperty("storeTimestamp", message.getStoreTimestamp());
        row.addProperty("storeHost", host(message.getStoreHost()));
        row.addProperty("reconsumeTimes", message.getReconsumeTimes());
        row.addProperty("preparedTransactionOffset", message.getPreparedTransactionOffset());
        row.addProperty("bodyLength", body.length);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
        row.addProperty("bodySha256", HexFormat.of().formatHex(digest));
        row.addProperty("msgId", message.getMsgId());
        JsonObject properties = new JsonObject();
        Map<String, String> decoded = message.getProperties() == null ? Map.of() : message.getProperties();
        for (Map.Entry<String, String> entry : new TreeMap<>(decoded).entrySet()) {
            properties.addProperty(entry.getKey(), entry.getValue());
        }
        row.add("properties", properties);
        return row;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + "|" + host.getPort();
    }

    /** Rows of every queue with its units, and of pulls at its edges and inside. */
    private int queues(PrintWriter out) {
        int units = 0;
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        for (String topic : new TreeSet<>(table.keySet())) {
            for (Map.Entry<Integer, ?> entry : new TreeMap<>(table.get(topic)).entrySet()) {
                QueueUnits queue = new QueueUnits(entry.getValue());
                long min = queue.min();
                long max = queue.max();
                print(out, queueEnds(topic, entry.getKey(), queue));
                for (long at = min; at < max; at++) {
                    units += unit(out, queue, topic, entry.getKey(), at);
                }
                Set<Long> asked = new LinkedHashSet<>(
                    List.of(-1L, 0L, min - 1, min, min + 1, (min + max) / 2, max - 1, max, max + 1, max + 1000));
                for (long offset : asked) {
                    get(out, topic, entry.getKey(), offset);
                }
            }
        }
        return units;
    }

    private static JsonObject placed(String kind, String topic, int queueId) {
        JsonObject row = row(kind);
        row.addProperty("topic", topic);
        row.addProperty("queueId", queueId);
        return row;
    }

    private int unit(PrintWriter out, QueueUnits queue, String topic, int queueId, long at) {
        long[] unit = queue.unit(at);
        if (unit == null) {
            return 0;
        }
        JsonObject row = placed("unit", topic, queueId);
        row.addProperty("queueOffset", at);
        row.addProperty("physicalOffset", unit[0]);
        row.addProperty("size", unit[1]);
        row.addProperty("tagsCode", unit[2]);
        print(out, row);
        return 1;
    }

    private void get(PrintWriter out, String topic, int queueId, long offset) {
        GetMessageResult found = store.getMessage("interop", topic, queueId, offset, MOST, null);
        JsonObject row = placed("get", topic, queueId);
        row.addProperty("offset", offset);
        row.addProperty("maxMsgNums", MOST);
        row.addProperty("status", found.getStatus().name());
        row.addProperty("nextBeginOffset", found.getNextBeginOffset());
        row.addProperty("minOffset", found.getMinOffset());
        row.addProperty("maxOffset", found.getMaxOffset());
        row.add("physicalOffsets", offsets(found.getMessageBufferList()));
        print(out, row);
        found.release();
    }

    private void queries(PrintWriter out, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String keys = message.getKeys() == null ? "" : message.getKeys();
            for (String key : keys.split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    keysAsked.add(List.of(message.getTopic(), key));
                }
            }
            String unique = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            if (unique != null) {
                keysAsked.add(List.of(message.getTopic(), unique));
            }
        }
        for (List<String> pair : keysAsked) {
            print(out, query(pair.get(0), pair.get(1)));
        }
    }

    /** What a query by a key of a topic gives. */
    JsonObject query(String topic, String key) {
        QueryMessageResult found = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        JsonObject row = row("query");
        row.addProperty("topic", topic);
        row.addProperty("key", key);
        row.add("physicalOffsets", offsets(found.getMessageBufferList()));
        found.release();
        return row;
    }

    private static JsonArray offsets(List<ByteBuffer> buffers) {
        JsonArray offsets = new JsonArray();
        for (ByteBuffer buffer : buffers) {
            if (buffer.remaining() < PHYSICAL_OFFSET_POSITION + Long.BYTES) {
                continue; // a unit or index item led the engine to zeros: no message
            }
            offsets.add(buffer.getLong(buffer.position() + PHYSICAL_OFFSET_POSITION));
        }
        return offsets;
    }
}
