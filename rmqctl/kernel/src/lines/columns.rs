//! The columns of a line, by their names in rows (`rmqctl/operations/look/rows.py`), and its form.

/// Columns that a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    PhysicalOffset,
    TotalSize,
    Topic,
    QueueId,
    QueueOffset,
    Flag,
    SysFlag,
    BodyCrc,
    BornTimestamp,
    BornHost,
    BornTime,
    StoreTimestamp,
    StoreHost,
    StoreTime,
    ReconsumeTimes,
    PreparedTransactionOffset,
    BodyLength,
    TagsCode,
    MsgId,
    Properties,
    Body,
    BodyEncoding,
    Status,
}

impl Column {
    /// Whether the cell depends only on fields that consecutive records often have in common.
    pub fn is_steady(self) -> bool {
        match self {
            Column::TotalSize
            | Column::Topic
            | Column::QueueId
            | Column::Flag
            | Column::SysFlag
            | Column::BornTimestamp
            | Column::BornHost
            | Column::BornTime
            | Column::StoreTimestamp
            | Column::StoreHost
            | Column::StoreTime
            | Column::ReconsumeTimes
            | Column::PreparedTransactionOffset
            | Column::BodyLength
            | Column::BodyEncoding
            | Column::Status => true,
            Column::PhysicalOffset
            | Column::QueueOffset
            | Column::BodyCrc
            | Column::TagsCode
            | Column::MsgId
            | Column::Properties
            | Column::Body => false,
        }
    }
}

/// The columns by their names in rows.
pub const COLUMNS: [(&str, Column); 24] = [
    ("physical_offset", Column::PhysicalOffset),
    ("total_size", Column::TotalSize),
    ("topic", Column::Topic),
    ("queue_id", Column::QueueId),
    ("queue_offset", Column::QueueOffset),
    ("flag", Column::Flag),
    ("sys_flag", Column::SysFlag),
    ("body_crc", Column::BodyCrc),
    ("born_timestamp", Column::BornTimestamp),
    ("born_host", Column::BornHost),
    ("born_time", Column::BornTime),
    ("store_timestamp", Column::StoreTimestamp),
    ("store_host", Column::StoreHost),
    ("store_time", Column::StoreTime),
    ("reconsume_times", Column::ReconsumeTimes),
    ("prepared_transaction_offset", Column::PreparedTransactionOffset),
    ("body_length", Column::BodyLength),
    ("tags_code", Column::TagsCode),
    ("msg_id", Column::MsgId),
    ("properties", Column::Properties),
    ("body", Column::Body),
    ("body_base64", Column::Body),
    ("body_encoding", Column::BodyEncoding),
    ("status", Column::Status),
];

/// A cell of a line: a column of the record, or a text that is always the same.
#[derive(Debug, Clone)]
pub enum Cell {
    Of(Column),
    Text(Vec<u8>),
}

/// The form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// What `--format ndjson` and `--format csv` print.
    Json,
    Csv,
    /// What `export` writes.
    JsonFile,
    CsvFile,
}

/// How a body is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    Base64,
    Hex,
    Utf8,
}
