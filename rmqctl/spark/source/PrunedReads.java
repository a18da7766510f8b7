package rmqctl;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A rule of Spark's optimiser: where a plan uses some columns of a read, or conditions say where its
 * rows can be, another read takes its place, which has those columns and options. Each place of
 * each query gets a read of its own, so that what one query needs never narrows another one.
 *
 * <p>Compiled by Spark's own compiler of generated code, which knows no type parameters: so there
 * are casts.
 */
public final class PrunedReads extends Rule {
    /** Columns whose values say for certain where rows can be. */
    private static final List PLACES =
        Arrays.asList(new Object[] {"physical_offset", "msg_id", "topic", "queue_id", "store", "file"});

    /** Those that do as far as a clock went forward: {@code clockSlackMs} says how far. */
    private static final List TIMES = Arrays.asList(new Object[] {"store_time", "store_timestamp"});

    /** Longer lists of values skip nothing worth their length. */
    private static final int MOST_VALUES = 1000;

    public TreeNode apply(TreeNode plan) {
        return pruned((LogicalPlan) plan, null);
    }

    /** A plan of which only these columns are used, or all where that is null. */
    private LogicalPlan pruned(LogicalPlan plan, AttributeSet used) {
        if (isRead(plan)) {
            return narrowed((DataSourceV2ScanRelation) plan, used, new ArrayList());
        }
        if (plan instanceof Filter && isRead(((Filter) plan).child())) {
            Filter filter = (Filter) plan;
            AttributeSet both = used == null ? null : used.$plus$plus(filter.references());
            DataSourceV2ScanRelation read = (DataSourceV2ScanRelation) filter.child();
            LogicalPlan made = narrowed(read, both, conditions(filter.condition(), new ArrayList()));
            return made == read ? plan : new Filter(filter.condition(), made);
        }
        boolean chooses = plan instanceof Project || plan instanceof Aggregate;
        AttributeSet wanted = chooses ? plan.references() : null;
        List children = new ArrayList();
        boolean isChanged = false;
        for (Iterator each = list(plan.children()).iterator(); each.hasNext(); ) {
            LogicalPlan child = (LogicalPlan) each.next();
            LogicalPlan made = pruned(child, wanted);
            isChanged |= made != child;
            children.add(made);
        }
        return isChanged ? (LogicalPlan) plan.withNewChildren(seq(children)) : plan;
    }

    private static boolean isRead(LogicalPlan plan) {
        if (!(plan instanceof DataSourceV2ScanRelation)) {
            return false;
        }
        Table table = ((DataSourceV2ScanRelation) plan).relation().table();
        return table instanceof PythonTable && table.name().equalsIgnoreCase("rocketmq");
    }

    private LogicalPlan narrowed(DataSourceV2ScanRelation read, AttributeSet used, List conditions) {
        List kept = new ArrayList();
        for (Iterator each = list(read.output()).iterator(); each.hasNext(); ) {
            Attribute one = (Attribute) each.next();
            if (used == null || used.contains(one)) {
                kept.add(one);
            }
        }
        if (kept.isEmpty()) {
            // Batches without a column do not know how many rows they are.
            kept.add(read.output().head());
        }
        List skipping = skipping(conditions, read.relation().options());
        if (kept.size() == read.output().size() && skipping.isEmpty()) {
            return read;
        }
        try {
            return renamed(another(read, kept, skipping), kept);
        } catch (Exception error) {
            // The read itself gives the same rows, or says better what is wrong.
            log().warn("rocketmq: all columns are read, for a narrower read failed", error);
            return read;
        }
    }

    /** Those of the conditions by which a read with these options may skip, unasked. */
    private static List skipping(List conditions, Map options) {
        List found = new ArrayList();
        // Whoever gives conditions has said what to skip. Damage that is skipped fails nobody.
        if (options.containsKey("where")
                || "true".equalsIgnoreCase((String) options.get("failOnDataLoss"))) {
            return found;
        }
        for (Iterator each = conditions.iterator(); each.hasNext(); ) {
            Object condition = each.next();
            Object column = ((List) condition).get(0);
            if (PLACES.contains(column)
                    || (TIMES.contains(column) && options.containsKey("clockSlackMs"))) {
                found.add(condition);
            }
        }
        return found;
    }

    /** A read like another one, of some of its columns. */
    private LogicalPlan another(DataSourceV2ScanRelation read, List kept, List conditions)
            throws JsonProcessingException {
        StructType schema = new StructType();
        for (Iterator each = kept.iterator(); each.hasNext(); ) {
            Attribute one = (Attribute) each.next();
            schema = schema.add(one.name(), one.dataType(), one.nullable());
        }
        Map options = new java.util.TreeMap(String.CASE_INSENSITIVE_ORDER);
        options.putAll(read.relation().options().asCaseSensitiveMap());
        List all = Arrays.asList(read.schema().fieldNames());
        List some = Arrays.asList(schema.fieldNames());
        if (!some.contains("status")) {
            // It is what tells of a check.
            options.remove("checkCrc");
        } else if (all.contains("body") && !options.containsKey("checkCrc")) {
            // What is checked unasked when bodies are read still is.
            options.put("checkCrc", "true");
        }
        if (!conditions.isEmpty()) {
            options.put("where", new ObjectMapper().writeValueAsString(conditions));
        }
        String name = read.relation().table().name();
        SparkSession session = SparkSession.active();
        Dataset made = (Dataset) session.read().format(name).options(options).schema(schema).load();
        return made.queryExecution().optimizedPlan();
    }

    /** A plan whose columns are those that others know by their numbers. */
    private static LogicalPlan renamed(LogicalPlan plan, List columns) {
        List named = new ArrayList();
        Iterator made = list(plan.output()).iterator();
        for (Iterator each = columns.iterator(); each.hasNext(); ) {
            Attribute one = (Attribute) each.next();
            named.add(
                new Alias(
                    (Expression) made.next(),
                    one.name(),
                    one.exprId(),
                    one.qualifier(),
                    Option.empty(),
                    seq(new ArrayList())));
        }
        return new Project(seq(named), plan);
    }

    /** Those parts of a condition that the source knows: a column, a comparison and a value. */
    private static List conditions(Expression condition, List found) {
        if (condition instanceof And) {
            conditions(((And) condition).left(), found);
            return conditions(((And) condition).right(), found);
        }
        Option translated = DataSourceStrategy$.MODULE$.translateFilter(condition, false);
        Object filter = translated.isDefined() ? translated.get() : null;
        if (filter instanceof EqualTo) {
            add(found, ((EqualTo) filter).attribute(), "=", ((EqualTo) filter).value());
        } else if (filter instanceof EqualNullSafe) {
            EqualNullSafe equal = (EqualNullSafe) filter;
            add(found, equal.attribute(), "=", equal.value());
        } else if (filter instanceof GreaterThan) {
            add(found, ((GreaterThan) filter).attribute(), ">", ((GreaterThan) filter).value());
        } else if (filter instanceof GreaterThanOrEqual) {
            GreaterThanOrEqual least = (GreaterThanOrEqual) filter;
            add(found, least.attribute(), ">=", least.value());
        } else if (filter instanceof LessThan) {
            add(found, ((LessThan) filter).attribute(), "<", ((LessThan) filter).value());
        } else if (filter instanceof LessThanOrEqual) {
            LessThanOrEqual most = (LessThanOrEqual) filter;
            add(found, most.attribute(), "<=", most.value());
        } else if (filter instanceof In && ((In) filter).values().length <= MOST_VALUES) {
            List values = new ArrayList();
            Object[] given = ((In) filter).values();
            for (int n = 0; n < given.length; n++) {
                if (given[n] != null) { // Nothing is equal to null.
                    values.add(plain(given[n]));
                }
            }
            add(found, ((In) filter).attribute(), "in", values.contains(null) ? null : values);
        }
        return found;
    }

    private static void add(List found, String column, String comparison, Object value) {
        Object told = value instanceof List ? value : plain(value);
        if (told != null) {
            found.add(Arrays.asList(new Object[] {column, comparison, told}));
        }
    }

    /** A value as JSON has it; null where the source would not know it. */
    private static Object plain(Object value) {
        if (value instanceof Timestamp) {
            return ((Timestamp) value).toInstant().toString();
        }
        boolean isWhole = value instanceof Long || value instanceof Integer
            || value instanceof Short || value instanceof Byte;
        return value instanceof Instant ? value.toString()
            : value instanceof String || isWhole ? value : null;
    }

    private static List list(Seq items) {
        return CollectionConverters.asJava(items);
    }

    private static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }
}
