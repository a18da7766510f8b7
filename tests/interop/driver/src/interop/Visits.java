package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Many stores at once: each is opened, written to, dumped, asked and shut down in a thread of its own,
 * since a start and a stop of the engine mostly wait. What went wrong with one is in its answer.
 */
final class Visits {
    private Visits() {
    }

    static JsonArray visit(JsonArray requests, int threads) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<JsonObject>> visits = new ArrayList<>();
        for (JsonElement one : requests) {
            visits.add(pool.submit(() -> visit(one.getAsJsonObject())));
        }
        JsonArray answers = new JsonArray();
        for (Future<JsonObject> visit : visits) {
            answers.add(visit.get());
        }
        pool.shutdown();
        // The engine leaves its files open, which only the collector closes.
        System.gc();
        return answers;
    }

    /** "started" as in Main.open; "error" where something failed later, and the store is not shut down. */
    private static JsonObject visit(JsonObject request) {
        JsonObject answer = new JsonObject();
        answer.addProperty("started", false);
        try {
            Engine engine = Engine.create(
                request.get("root").getAsString(), request.getAsJsonObject("config"));
            String why = engine.store.load() ? engine.start() : "load failed";
            if (why != null) {
                answer.addProperty("why", why);
                return answer;
            }
            answer.addProperty("started", true);
            if (request.has("messages")) {
                put(engine, Path.of(request.get("messages").getAsString()));
            }
            engine.settle();
            if (request.get("expires").getAsBoolean()) {
                new Services(engine).clean(true, 1);
            }
            Path to = Path.of(request.get("to").getAsString());
            Dump dump = new Dump(engine.store);
            dump.write(to);
            ask(engine, dump, request, to);
            engine.shutdown();
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer.addProperty("error", problem.toString());
        }
        return answer;
    }

    /** Messages of a file, one or those of a batch a line; all of them must be taken. */
    private static void put(Engine engine, Path file) throws Exception {
        try (BufferedReader lines = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonArray messages = JsonParser.parseString(line).getAsJsonArray();
                JsonObject result =
                    engine.put(messages, messages.size() > 1).get(0).getAsJsonObject();
                String status = result.get("status").getAsString();
                if (!status.equals("PUT_OK")) {
                    throw new IllegalStateException(status + " for " + line);
                }
            }
        }
    }

    /**
     * Further rows: "look" of offsets and "query" of pairs of topic and key that the dump has not, and
     * "pull" of places in queues.
     */
    private static void ask(Engine engine, Dump dump, JsonObject request, Path to) throws Exception {
        try (PrintWriter out = new PrintWriter(
            Files.newBufferedWriter(to, StandardCharsets.UTF_8, StandardOpenOption.APPEND))) {
            for (JsonElement offset : request.getAsJsonArray("look")) {
                if (!dump.messagesWritten.contains(offset.getAsLong())) {
                    JsonObject row = new JsonObject();
                    row.addProperty("kind", "look");
                    row.add("offset", offset);
                    row.add("message", look(dump, offset.getAsLong()));
                    out.println(Main.GSON.toJson(row));
                }
            }
            for (JsonElement pair : request.getAsJsonArray("ask")) {
                String topic = pair.getAsJsonArray().get(0).getAsString();
                String key = pair.getAsJsonArray().get(1).getAsString();
                if (!dump.keysAsked.contains(List.of(topic, key))) {
                    out.println(Main.GSON.toJson(dump.query(topic, key)));
                }
            }
            JsonArray pulls = request.getAsJsonArray("pull");
            JsonArray pulled = Answers.pull(engine, pulls);
            for (int number = 0; number < pulls.size(); number++) {
                JsonObject row = new JsonObject();
                row.addProperty("kind", "pull");
                row.add("asked", pulls.get(number));
                row.add("answer", pulled.get(number));
                out.println(Main.GSON.toJson(row));
            }
        }
    }

    /** The message at an offset; null where there is none, or none that can be read. */
    private static JsonElement look(Dump dump, long offset) {
        try {
            JsonObject message = dump.messageAt(offset);
            return message == null ? JsonNull.INSTANCE : message;
        } catch (Exception problem) {
            return JsonNull.INSTANCE;
        }
    }
}
