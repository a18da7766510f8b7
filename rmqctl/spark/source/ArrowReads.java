package rmqctl;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomTaskMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A rule of Spark's optimiser: the Arrow batches of a read of {@code rocketmq} are handed on as
 * columns. Spark makes a row of each message that comes from Python, and copies it once more for
 * whoever asks; of columns the code that it generates takes those values that it uses.
 *
 * <p>Compiled by Spark's own compiler of generated code, which knows no type parameters: so there
 * are casts. What tasks need is sent to the executors as a jar.
 */
public final class ArrowReads extends Rule {
    public TreeNode apply(TreeNode tree) {
        LogicalPlan plan = (LogicalPlan) tree;
        if (plan instanceof DataSourceV2ScanRelation) {
            return ofColumns((DataSourceV2ScanRelation) plan);
        }
        List children = new ArrayList();
        boolean isChanged = false;
        for (Iterator each = list(plan.children()).iterator(); each.hasNext(); ) {
            Object child = each.next();
            Object made = apply((TreeNode) child);
            isChanged |= made != child;
            children.add(made);
        }
        return isChanged ? plan.withNewChildren(seq(children)) : plan;
    }

    private static LogicalPlan ofColumns(DataSourceV2ScanRelation read) {
        boolean isOurs = read.scan() instanceof PythonScan
            && read.relation().table().name().equalsIgnoreCase("rocketmq");
        if (!isOurs) {
            return read;
        }
        Object[] parts = new Object[read.productArity()];
        for (int n = 0; n < parts.length; n++) {
            Object part = read.productElement(n);
            parts[n] = part == read.scan() ? new ColumnScan((PythonScan) part) : part;
        }
        return (LogicalPlan) read.makeCopy(parts);
    }

    /** A scan in Python whose batches stay what they are. */
    public static final class ColumnScan implements Scan, SupportsMetadata {
        private final PythonScan rows;

        ColumnScan(PythonScan rows) {
            this.rows = rows;
        }

        public StructType readSchema() {
            return rows.readSchema();
        }

        public String description() {
            return rows.description();
        }

        public scala.collection.immutable.Map getMetaData() {
            return rows.getMetaData();
        }

        public CustomMetric[] supportedCustomMetrics() {
            return rows.supportedCustomMetrics();
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return Scan.ColumnarSupportMode.SUPPORTED;
        }

        public Batch toBatch() {
            return new ColumnBatch(rows.toBatch());
        }
    }

    /** What a scan is to Spark while it plans tasks. */
    private static final class ColumnBatch implements Batch {
        private final Batch rows;

        ColumnBatch(Batch rows) {
            this.rows = rows;
        }

        public InputPartition[] planInputPartitions() {
            return rows.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return new ColumnReaders((PythonPartitionReaderFactory) rows.createReaderFactory());
        }
    }

    /** What travels to the executors. */
    public static final class ColumnReaders implements PartitionReaderFactory {
        private static final long serialVersionUID = 1L;

        private final PythonPartitionReaderFactory rows;

        ColumnReaders(PythonPartitionReaderFactory rows) {
            this.rows = rows;
        }

        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        public PartitionReader createReader(InputPartition partition) {
            return rows.createReader(partition);
        }

        public PartitionReader createColumnarReader(InputPartition partition) {
            return new ColumnReader(rows, (PythonInputPartition) partition);
        }
    }

    /** The batches of one task, each until the next is asked for. */
    private static final class ColumnReader implements PartitionReader {
        private final scala.collection.immutable.Map metrics;
        private final scala.collection.Iterator batches;

        /** Does what {@code createReader} of Spark's own does, up to where rows are made. */
        ColumnReader(PythonPartitionReaderFactory rows, PythonInputPartition partition) {
            // Spark's names for what its readers share.
            UserDefinedPythonDataSource source = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
            byte[] function = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc;
            Option jobArtifacts = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID;
            Option sessions = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID;
            metrics = PythonCustomMetric.pythonMetrics();
            SQLConf conf = SQLConf.get();
            Object called = new ChainedPythonFunctions(one(source.createPythonFunction(function)));
            ArrowPythonRunner runner = new ArrowPythonRunner(
                one(new Tuple2(called, Long.valueOf(0))),
                PythonEvalType.SQL_MAP_ARROW_ITER_UDF(),
                new int[][] {{0}},
                new StructType().add("struct", UserDefinedPythonDataSource.readInputSchema()),
                conf.sessionLocalTimeZone(),
                conf.arrowUseLargeVarTypes(),
                ArrowPythonRunner.getPythonRunnerConfMap(conf),
                metrics,
                jobArtifacts,
                sessions);
            Object row = new GenericInternalRow(new Object[] {partition.pickedPartition()});
            Object asked = new GenericInternalRow(new Object[] {row});
            TaskContext context = TaskContext.get();
            batches = runner.compute(single(single(asked)), context.partitionId(), context);
        }

        public boolean next() {
            return batches.hasNext();
        }

        public Object get() {
            ColumnarBatch made = (ColumnarBatch) batches.next();
            ArrowColumnVector struct = (ArrowColumnVector) made.column(0);
            int count = ((StructType) struct.dataType()).length();
            ColumnVector[] columns = new ColumnVector[count];
            for (int n = 0; n < count; n++) {
                columns[n] = Column.of((ArrowColumnVector) struct.getChild(n));
            }
            return new LentBatch(columns, made.numRows());
        }

        /** The worker is let go of when the task ends. */
        public void close() {}

        public CustomTaskMetric[] currentMetricsValues() {
            List values = new ArrayList();
            scala.collection.Iterator each = metrics.iterator();
            while (each.hasNext()) {
                Tuple2 metric = (Tuple2) each.next();
                Long value = (Long) ((AccumulatorV2) metric._2()).value();
                values.add(new PythonCustomTaskMetric((String) metric._1(), value.longValue()));
            }
            return (CustomTaskMetric[]) values.toArray(new CustomTaskMetric[0]);
        }
    }

    /** Its buffers are those of the reader of the stream, which fills and frees them. */
    private static final class LentBatch extends ColumnarBatch {
        LentBatch(ColumnVector[] columns, int count) {
            super(columns, count);
        }

        public void closeIfFreeable() {}
    }

    /**
     * The values of one column, where Arrow has them. Spark's own column asks four objects, each of
     * a class of its type, for a value; of one class for all types the generated code has the reads
     * themselves.
     */
    private static final class Column extends ColumnVector {
        private final int nulls;
        private final long validity;
        private final long values;
        private final long offsets;
        private final Column keys;
        private final Column items;

        private Column(DataType type, FieldVector from, long offsets, Column keys, Column items) {
            super(type);
            this.nulls = from.getNullCount();
            this.validity = from.getValidityBuffer().memoryAddress();
            this.values = keys == null ? from.getDataBuffer().memoryAddress() : 0;
            this.offsets = offsets;
            this.keys = keys;
            this.items = items;
        }

        /** A column as it is, or this class over it where it knows the kind. */
        static ColumnVector of(ArrowColumnVector column) {
            ColumnVector known = of(column.dataType(), (FieldVector) column.getValueVector());
            return known == null ? column : known;
        }

        private static Column of(DataType type, FieldVector from) {
            if (from instanceof IntVector || from instanceof BigIntVector
                    || from instanceof TimeStampMicroTZVector) {
                return new Column(type, from, 0, null, null);
            }
            if (from instanceof VarCharVector || from instanceof VarBinaryVector) {
                return new Column(type, from, from.getOffsetBuffer().memoryAddress(), null, null);
            }
            if (from instanceof MapVector) {
                StructVector entries = (StructVector) ((MapVector) from).getDataVector();
                MapType map = (MapType) type;
                Column keys = of(map.keyType(), (FieldVector) entries.getChildByOrdinal(0));
                Column items = of(map.valueType(), (FieldVector) entries.getChildByOrdinal(1));
                if (keys != null && items != null) {
                    long offsets = from.getOffsetBuffer().memoryAddress();
                    return new Column(type, from, offsets, keys, items);
                }
            }
            return null;
        }

        public boolean hasNull() {
            return nulls > 0;
        }

        public int numNulls() {
            return nulls;
        }

        public boolean isNullAt(int row) {
            return nulls > 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
        }

        public int getInt(int row) {
            return Platform.getInt(null, values + 4L * row);
        }

        public long getLong(int row) {
            return Platform.getLong(null, values + 8L * row);
        }

        public UTF8String getUTF8String(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int start = start(row);
            return UTF8String.fromAddress(null, values + start, start(row + 1) - start);
        }

        public byte[] getBinary(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int start = start(row);
            byte[] made = new byte[start(row + 1) - start];
            Platform.copyMemory(
                null, values + start, made, Platform.BYTE_ARRAY_OFFSET, made.length);
            return made;
        }

        public ColumnarMap getMap(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int start = start(row);
            return new ColumnarMap(keys, items, start, start(row + 1) - start);
        }

        private int start(int row) {
            return Platform.getInt(null, offsets + 4L * row);
        }

        /** The buffers are lent. */
        public void close() {}

        public boolean getBoolean(int row) {
            throw new UnsupportedOperationException();
        }

        public byte getByte(int row) {
            throw new UnsupportedOperationException();
        }

        public short getShort(int row) {
            throw new UnsupportedOperationException();
        }

        public float getFloat(int row) {
            throw new UnsupportedOperationException();
        }

        public double getDouble(int row) {
            throw new UnsupportedOperationException();
        }

        public ColumnarArray getArray(int row) {
            throw new UnsupportedOperationException();
        }

        public Decimal getDecimal(int row, int precision, int scale) {
            throw new UnsupportedOperationException();
        }

        public ColumnVector getChild(int ordinal) {
            throw new UnsupportedOperationException();
        }
    }

    private static scala.collection.Iterator single(Object item) {
        return scala.collection.Iterator$.MODULE$.single(item);
    }

    private static Seq one(Object item) {
        List items = new ArrayList();
        items.add(item);
        return seq(items);
    }

    private static List list(Seq items) {
        return CollectionConverters.asJava(items);
    }

    private static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }
}
