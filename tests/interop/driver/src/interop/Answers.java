package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.parser.Feature;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;

/** What the engine makes of a consumer's pulls, its filters, and of a broker's JSON. */
final class Answers {
    private Answers() {
    }

    /**
     * Pulls of a consumer, in order; "type" is TAG, SQL92 or null for no filter at all. The place of
     * bytes that are no record is -1. Where the engine fails, the answer is {"throws": its class}.
     */
    static JsonArray pull(Engine engine, JsonArray asked) throws Exception {
        JsonArray rows = new JsonArray();
        for (JsonElement one : asked) {
            JsonObject request = one.getAsJsonObject();
            JsonElement type = request.get("type");
            MessageFilter filter = type.isJsonNull()
                ? null : engine.filter(type.getAsString(), request.get("expression").getAsString());
            JsonObject row = new JsonObject();
            try {
                pull(engine, request, filter, row);
            } catch (RuntimeException problem) {
                row.addProperty("throws", problem.getClass().getSimpleName());
            }
            rows.add(row);
        }
        return rows;
    }

    private static void pull(Engine engine, JsonObject request, MessageFilter filter, JsonObject row) {
        GetMessageResult found = engine.store.getMessage(
            "interop",
            request.get("topic").getAsString(),
            request.get("queueId").getAsInt(),
            request.get("offset").getAsLong(),
            request.get("maxMsgNums").getAsInt(),
            filter);
        row.addProperty("status", found.getStatus().name());
        row.addProperty("nextBeginOffset", found.getNextBeginOffset());
        row.addProperty("suggestPullingFromSlave", found.isSuggestPullingFromSlave());
        JsonArray offsets = new JsonArray();
        for (ByteBuffer buffer : found.getMessageBufferList()) {
            boolean isRecord =
                buffer.remaining() >= 36 && buffer.getInt(buffer.position()) == buffer.remaining();
            offsets.add(isRecord ? buffer.getLong(buffer.position() + 28) : -1L);
        }
        row.add("physicalOffsets", offsets);
        found.release();
    }

    /** Of each expression its answer for each map of properties: true, false, null, or throws; and
     * null in place of them all where it is no expression. */
    static JsonArray matches(JsonArray expressions, JsonArray properties) {
        List<MessageEvaluationContext> contexts = new ArrayList<>();
        for (JsonElement one : properties) {
            Map<String, String> map = new HashMap<>();
            one.getAsJsonObject().entrySet().forEach(e -> map.put(e.getKey(), e.getValue().getAsString()));
            contexts.add(new MessageEvaluationContext(map));
        }
        JsonArray rows = new JsonArray();
        for (JsonElement text : expressions) {
            try {
                Expression expression = FilterFactory.INSTANCE.get("SQL92").compile(text.getAsString());
                JsonArray answers = new JsonArray();
                contexts.forEach(context -> answers.add(answer(expression, context)));
                rows.add(answers);
            } catch (MQFilterException | RuntimeException | Error problem) {
                rows.add(JsonNull.INSTANCE);
            }
        }
        return rows;
    }

    private static String answer(Expression expression, MessageEvaluationContext context) {
        try {
            return String.valueOf(expression.evaluate(context));
        } catch (Exception problem) {
            return "throws";
        }
    }

    /** Of each text null where fastjson refuses it, else the value and how fastjson writes it. */
    static JsonArray json(JsonArray texts) {
        JsonArray rows = new JsonArray();
        for (JsonElement text : texts) {
            try {
                Object value = JSON.parse(text.getAsString(), Feature.OrderedField);
                JsonObject row = new JsonObject();
                row.add("value", JsonParser.parseString(JSON.toJSONString(value)));
                row.addProperty("text", JSON.toJSONString(value, true));
                rows.add(row);
            } catch (RuntimeException problem) {
                rows.add(JsonNull.INSTANCE);
            }
        }
        return rows;
    }
}
