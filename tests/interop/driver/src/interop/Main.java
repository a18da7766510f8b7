package interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;

/**
 * Reads one JSON object a line from standard input, does what it asks, and answers with one line:
 * {"ok": …} or {"error": "…"}. The stores that are open have the names that the caller gave.
 *
 * <p>The process is started once and serves many stores, since a Java start takes a second or two;
 * it ends with its input. A caller that wants a crash kills it.
 */
public final class Main {
    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    private final Map<String, Engine> stores = new HashMap<>();
    private Node node;
    private Slave slave;
    private Group group;

    public static void main(String[] arguments) throws Exception {
        // What the engine prints must not get between the answers.
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Main main = new Main();
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject answer = new JsonObject();
            try {
                JsonObject request = JsonParser.parseString(line).getAsJsonObject();
                answer.add("ok", main.answer(request.get("do").getAsString(), request));
            } catch (Throwable problem) {
                problem.printStackTrace();
                answer.addProperty("error", problem.toString());
            }
            answers.println(GSON.toJson(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private JsonElement answer(String what, JsonObject request) throws Exception {
        switch (what) {
            case "open":
                return open(request);
            case "put":
                return store(request).put(
                    request.getAsJsonArray("messages"), request.get("batch").getAsBoolean());
            case "dump":
                store(request).settle();
                return new Dump(store(request).store).write(Path.of(request.get("to").getAsString()));
            case "ends":
                store(request).settle();
                return new Dump(store(request).store).ends();
            case "look":
                return new Dump(store(request).store).messageAt(request.get("offset").getAsLong());
            case "query":
                return new Dump(store(request).store).query(
                    request.get("topic").getAsString(), request.get("key").getAsString());
            case "pull":
                store(request).settle();
                return Answers.pull(store(request), request.getAsJsonArray("pulls"));
            case "matches":
                return Answers.matches(
                    request.getAsJsonArray("expressions"), request.getAsJsonArray("properties"));
            case "json":
                return Answers.json(request.getAsJsonArray("texts"));
            case "settle":
                store(request).settle();
                return new JsonObject();
            case "epochs":
                return store(request).epochs(
                    request.get("path").getAsString(), request.get("cut").getAsLong());
            case "compress":
                return store(request).compress(
                    request.get("how").getAsString(), request.get("body").getAsString());
            case "compact":
                return new com.google.gson.JsonPrimitive(store(request).compact(
                    request.get("topic").getAsString(), request.get("queueId").getAsInt()));
            case "shutdown":
                return stores.remove(request.get("store").getAsString()).shutdown();
            case "visit":
                return Visits.visit(request.getAsJsonArray("stores"), request.get("threads").getAsInt());
            case "slave":
                slave = new Slave(
                    request.get("root").getAsString(), request.getAsJsonObject("config"),
                    request.get("address").getAsString(), request.get("name").getAsString());
                return new JsonObject();
            case "slaveAwait":
                return new com.google.gson.JsonPrimitive(
                    slave.await(request.get("end").getAsLong(), request.get("millis").getAsLong()));
            case "slaveStop":
                slave.stop();
                return new JsonObject();
            case "group":
                group = new Group(request.get("root").getAsString(), request.getAsJsonObject("config"));
                return new com.google.gson.JsonPrimitive(group.leader());
            case "groupPut":
                return group.put(request.getAsJsonArray("messages"));
            case "groupChange":
                return new com.google.gson.JsonPrimitive(group.change());
            case "groupAlone":
                return new com.google.gson.JsonPrimitive(
                    group.putAlone(request.getAsJsonArray("messages")));
            case "timers":
                return Engine.timers(request.get("root").getAsString(), request.getAsJsonObject("config"));
            case "places":
                return GSON.toJsonTree(node.places());
            case "broker":
                node = new Node(request.get("root").getAsString(), request.getAsJsonObject("config"));
                return new JsonObject();
            case "send":
                return node.send(request.getAsJsonArray("messages"));
            case "transact":
                return node.transact(request.getAsJsonArray("messages"));
            case "consume":
                return node.consume(request);
            case "offsets":
                return node.committed();
            case "address":
                return new com.google.gson.JsonPrimitive(node.address());
            case "clientConsume":
                return Client.consume(request);
            case "clientLook":
                return Client.look(request);
            case "clientSend":
                return Client.send(request);
            case "loadSend":
                return Load.send(request);
            case "loadConsume":
                return Load.consume(request);
            case "pop":
            case "popAck":
            case "popInvisible":
                return (JsonElement) Class.forName("interop.Engine5Pop")
                    .getMethod("answer", String.class, JsonObject.class)
                    .invoke(null, node.places().get(0), request);
            case "tieredEnds":
            case "tieredPull":
            case "tieredQuery":
                return (JsonElement) Class.forName("interop.Engine5Tiered")
                    .getMethod("answer", BrokerController.class, JsonObject.class)
                    .invoke(null, node.broker(), request);
            case "connect":
                return Admin.connect(request);
            case "disconnect":
                return Admin.disconnect();
            case "admin":
                return Admin.run(request);
            case "stop":
                node.stop();
                node = null;
                return new JsonObject();
            default:
                return new Services(store(request)).answer(what, request);
        }
    }

    /**
     * Loads and starts the engine on a directory. "loaded" is false when it refuses to, "started" when
     * it then goes no further: "why" says what stopped it.
     */
    private JsonElement open(JsonObject request) throws Exception {
        Engine engine = Engine.create(
            request.get("root").getAsString(), request.getAsJsonObject("config"),
            request.get("delivers").getAsBoolean());
        JsonObject answer = new JsonObject();
        boolean loaded = engine.store.load();
        answer.addProperty("loaded", loaded);
        String why = loaded ? engine.start() : "load failed";
        answer.addProperty("started", why == null);
        if (why == null) {
            stores.put(request.get("store").getAsString(), engine);
        } else {
            answer.addProperty("why", why);
        }
        return answer;
    }

    private Engine store(JsonObject request) {
        Engine engine = stores.get(request.get("store").getAsString());
        if (engine == null) {
            throw new IllegalStateException("no such store is open");
        }
        return engine;
    }
}
