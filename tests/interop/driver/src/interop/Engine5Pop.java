package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** What a consumer that pops asks of a broker, request by request; of 5.x only. */
public final class Engine5Pop {
    private static final long PATIENCE = 30_000;
    private static final String BROKER = "interop";

    /** One for all requests: it takes seconds to shut one down. */
    private static MQClientAPIExt client;

    private Engine5Pop() {}

    /** Answers "pop", "popAck" and "popInvisible". */
    public static JsonElement answer(String address, JsonObject request) throws Exception {
        if (client == null) {
            client = new MQClientAPIExt(
                new ClientConfig(), new NettyClientConfig(), new ClientRemotingProcessor(null), null);
            client.start();
        }
        switch (request.get("do").getAsString()) {
            case "pop":
                return pop(client, address, request);
            case "popAck":
                return ack(client, address, request);
            default:
                return invisible(client, address, request);
        }
    }

    private static JsonElement pop(MQClientAPIExt api, String address, JsonObject request) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(request.get("group").getAsString());
        header.setTopic(request.get("topic").getAsString());
        header.setQueueId(request.get("queueId").getAsInt());
        header.setMaxMsgNums(request.get("count").getAsInt());
        header.setInvisibleTime(request.get("invisible").getAsLong());
        header.setPollTime(0);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(request.get("order").getAsBoolean());
        PopResult result = api.popMessageAsync(address, BROKER, header, PATIENCE).get();
        List<MessageExt> found = result.getMsgFoundList();
        JsonArray rows = new JsonArray();
        for (MessageExt message : found == null ? List.<MessageExt>of() : found) {
            JsonObject row = new JsonObject();
            row.addProperty("topic", message.getTopic());
            row.addProperty("queueId", message.getQueueId());
            row.addProperty("queueOffset", message.getQueueOffset());
            row.addProperty("extraInfo", message.getProperty(MessageConst.PROPERTY_POP_CK));
            row.addProperty("body", Base64.getEncoder().encodeToString(message.getBody()));
            rows.add(row);
        }
        return rows;
    }

    private static JsonElement ack(MQClientAPIExt api, String address, JsonObject request) throws Exception {
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(request.get("group").getAsString());
        header.setTopic(request.get("topic").getAsString());
        header.setQueueId(request.get("queueId").getAsInt());
        header.setOffset(request.get("queueOffset").getAsLong());
        header.setExtraInfo(request.get("extraInfo").getAsString());
        return status(api.ackMessageAsync(address, header, PATIENCE).get());
    }

    private static JsonElement invisible(MQClientAPIExt api, String address, JsonObject request) throws Exception {
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(request.get("group").getAsString());
        header.setTopic(request.get("topic").getAsString());
        header.setQueueId(request.get("queueId").getAsInt());
        header.setOffset(request.get("queueOffset").getAsLong());
        header.setExtraInfo(request.get("extraInfo").getAsString());
        header.setInvisibleTime(request.get("invisible").getAsLong());
        return status(api.changeInvisibleTimeAsync(address, BROKER, header, PATIENCE).get());
    }

    private static JsonElement status(AckResult result) {
        return new JsonPrimitive(result.getStatus().name());
    }
}
