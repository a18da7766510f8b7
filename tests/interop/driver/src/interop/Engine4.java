package interop;

import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** 4.9.3. */
final class Engine4 extends Engine {
    @Override
    void open() throws Exception {
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        store = new DefaultMessageStore(config, statistics, (t, q, o, c, s, f, p) -> { }, new BrokerConfig());
        if (!delivers) {
            Settling.field(DefaultMessageStore.class, "scheduleMessageService").set(store, new Resting(store));
        }
    }

    /** Knows the delay levels, and delivers nothing. */
    private static final class Resting extends ScheduleMessageService {
        private boolean isStarted;

        Resting(DefaultMessageStore store) {
            super(store);
        }

        @Override
        public void start() {
            isStarted = true;
        }

        @Override
        public void shutdown() {
            if (isStarted) {
                isStarted = false;
                persist();
            }
        }
    }

    @Override
    MessageExt message() {
        return new MessageExtBrokerInner();
    }

    @Override
    void setPropertiesString(MessageExt message, String properties) {
        ((MessageExtBrokerInner) message).setPropertiesString(properties);
    }

    @Override
    PutMessageResult put(MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    @Override
    MessageFilter filter(String type, String expression) throws Exception {
        return new ExpressionMessageFilter(
            FilterAPI.build("topic", expression, type),
            ConsumerFilterManager.build("topic", "interop", expression, type, 1),
            new ConsumerFilterManager());
    }
}
