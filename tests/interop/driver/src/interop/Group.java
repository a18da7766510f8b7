package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.store.DLedgerStore;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/** Three members of a DLedger group, each with a store of its own, below one directory. */
final class Group {
    private static final int MEMBERS = 3;

    private final String root;
    private final JsonObject settings;
    private final Map<String, Engine> members = new TreeMap<>();

    Group(String root, JsonObject settings) throws Exception {
        this.root = root;
        this.settings = settings;
        List<String> peers = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            peers.add("n" + number + "-127.0.0.1:" + Node.freePort());
        }
        settings.addProperty("dLegerPeers", String.join(";", peers));
        for (int number = 0; number < MEMBERS; number++) {
            join("n" + number);
        }
    }

    private void join(String name) throws Exception {
        JsonObject own = settings.deepCopy();
        own.addProperty("dLegerSelfId", name);
        Engine engine = Engine.create(root + "/" + name, own, false);
        if (!engine.store.load()) {
            throw new IllegalStateException(name + " does not load its store");
        }
        engine.store.start();
        members.put(name, engine);
    }

    private static DLedgerServer server(Engine engine) {
        return ((DLedgerCommitLog) engine.store.getCommitLog()).getdLedgerServer();
    }

    private static DLedgerStore entries(Engine engine) {
        return server(engine).getdLedgerStore();
    }

    /** The member that leads, when all that it has is committed, and every other has it as well. */
    String leader() throws Exception {
        long patience = System.currentTimeMillis() + Engine.PATIENCE_MILLIS;
        while (System.currentTimeMillis() < patience) {
            for (Map.Entry<String, Engine> member : members.entrySet()) {
                if (server(member.getValue()).getMemberState().isLeader() && isSettled(member.getValue())) {
                    return member.getKey();
                }
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("no member leads the group");
    }

    private boolean isSettled(Engine leader) {
        long end = entries(leader).getLedgerEndIndex();
        for (Engine member : members.values()) {
            if (entries(member).getLedgerEndIndex() != end || entries(member).getCommittedIndex() != end
                || member.store.dispatchBehindBytes() > 0) {
                return false;
            }
        }
        return true;
    }

    /** Puts by the leader. A broker that becomes one looks first where its queues end. */
    JsonArray put(JsonArray messages) throws Exception {
        Engine engine = members.get(leader());
        engine.store.recoverTopicQueueTable();
        JsonArray results = engine.put(messages, false);
        leader();
        return results;
    }

    /** The leader goes, another takes its place, and the former one comes back; the new leader. */
    String change() throws Exception {
        String name = leader();
        stop(members.remove(name));
        leader();
        join(name);
        return leader();
    }

    /** The others go, and the leader takes messages that nobody commits; its name. Then it goes, too. */
    String putAlone(JsonArray rows) throws Exception {
        String name = leader();
        Engine engine = members.get(name);
        engine.store.recoverTopicQueueTable();
        for (Map.Entry<String, Engine> member : members.entrySet()) {
            if (!member.getKey().equals(name)) {
                server(member.getValue()).shutdown();
            }
        }
        long end = entries(engine).getLedgerEndIndex() + rows.size();
        for (JsonElement row : rows) {
            MessageExt message = Engine.decoded(row.getAsJsonObject(), engine.message());
            engine.setPropertiesString(
                message, MessageDecoder.messageProperties2String(message.getProperties()));
            Thread putting = new Thread(() -> engine.put(message));
            long before = entries(engine).getLedgerEndIndex();
            putting.setDaemon(true);
            putting.start();
            long patience = System.currentTimeMillis() + Engine.PATIENCE_MILLIS;
            while (entries(engine).getLedgerEndIndex() == before) {
                if (System.currentTimeMillis() > patience) {
                    throw new IllegalStateException("the leader does not take the message");
                }
                Thread.sleep(1);
            }
        }
        if (entries(engine).getLedgerEndIndex() != end || entries(engine).getCommittedIndex() == end) {
            throw new IllegalStateException("what was put alone is committed, or not there");
        }
        leave();
        return name;
    }

    /** All members go. */
    void leave() {
        for (Engine engine : members.values()) {
            stop(engine);
        }
        members.clear();
    }

    private static void stop(Engine engine) {
        Thread.currentThread().interrupt();
        engine.store.shutdown();
        Thread.interrupted();
    }
}
