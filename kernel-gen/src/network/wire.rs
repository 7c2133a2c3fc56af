//! Holds a file's bytes against the wire format of protocol buffers before they are decoded.
//!
//! The decoder of rten-onnx 0.27 goes round for ever at an integer of more than ten bytes, adds lengths that may overflow, and
//! calls itself for each message within a message. So no file comes to it whose integers, lengths and depth are not checked.
//! <https://protobuf.dev/programming-guides/encoding/> describes the format.

/// Most messages within each other. A model has six levels, and as many again for each graph within a node.
const DEEPEST: usize = 64;

/// A message of ONNX, by what of it matters here: the fields that are messages, or lists of integers in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Sequence,
    /// One without messages in it.
    Leaf,
}

/// What the bytes of a field are.
enum Field {
    Message(Message),
    Integers,
    Bytes,
}

impl Message {
    /// What a field is that has a length. The numbers are those of `onnx.proto`.
    fn field(self, number: u64) -> Field {
        Field::Message(match (self, number) {
            (Message::Model, 7) => Message::Graph,
            (Message::Model, 8 | 14) | (Message::Tensor, 13) => Message::Leaf,
            (Message::Graph, 1) => Message::Node,
            (Message::Graph, 5) | (Message::Attribute, 5) => Message::Tensor,
            (Message::Graph, 11..=13) => Message::ValueInfo,
            (Message::Node, 5) => Message::Attribute,
            (Message::Attribute, 6) => Message::Graph,
            (Message::ValueInfo, 2) | (Message::Sequence, 1) => Message::Type,
            (Message::Type, 1) => Message::TensorType,
            (Message::Type, 4) => Message::Sequence,
            (Message::TensorType, 2) => Message::Shape,
            (Message::Shape, 1) => Message::Leaf,
            (Message::Tensor, 1 | 5 | 7) => return Field::Integers,
            _ => return Field::Bytes,
        })
    }
}

/// Checks the bytes of a model; says where they break the format.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    message(bytes, Message::Model, 0, 0)
}

/// Checks a message that begins at byte `start` of the file.
fn message(bytes: &[u8], kind: Message, start: usize, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("at byte {start}, more than {DEEPEST} messages lie within each other"));
    }
    let mut at = 0;
    while at < bytes.len() {
        let begin = start + at;
        let broken = |what: &str| format!("at byte {begin}, {what}");
        let tag = integer(bytes, &mut at).ok_or_else(|| broken("an integer is cut off or too long"))?;
        let length = match tag & 7 {
            0 => {
                integer(bytes, &mut at).ok_or_else(|| broken("an integer is cut off or too long"))?;
                continue;
            }
            1 => 8,
            5 => 4,
            2 => integer(bytes, &mut at).ok_or_else(|| broken("an integer is cut off or too long"))?,
            other => return Err(broken(&format!("a field is of the unknown type {other}"))),
        };
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
        let part =
            end.and_then(|end| bytes.get(at..end)).ok_or_else(|| broken("a field is longer than what holds it"))?;
        if tag & 7 == 2 {
            match kind.field(tag >> 3) {
                Field::Message(inner) => message(part, inner, start + at, depth + 1)?,
                Field::Integers => {
                    let mut place = 0;
                    while place < part.len() {
                        integer(part, &mut place)
                            .ok_or_else(|| broken("an integer of a list is cut off or too long"))?;
                    }
                }
                Field::Bytes => {}
            }
        }
        at += part.len();
    }
    Ok(())
}

/// The integer at a place, which moves behind it: seven bits a byte, the last byte below 128; at most ten bytes.
fn integer(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for i in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        // Of the tenth byte only one bit is left.
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 127) << (7 * i);
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_lengths_and_depth_are_checked() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[0x08, 0x09]), Ok(()), "the version 9");
        let error = |bytes: &[u8]| check(bytes).unwrap_err();
        assert_eq!(error(&[0xff; 11]), "at byte 0, an integer is cut off or too long");
        assert_eq!(error(&[0x08, 0x80]), "at byte 0, an integer is cut off or too long");
        assert_eq!(error(&[0x3a, 0x05, 0x00]), "at byte 0, a field is longer than what holds it");
        assert_eq!(error(&[0x08, 0x09, 0x0b]), "at byte 2, a field is of the unknown type 3");
        // The graph of a node's attribute of a graph, and so on.
        let mut nested = vec![];
        for tag in [0x3a, 0x0a, 0x2a, 0x32].iter().cycle().take(200).collect::<Vec<_>>().into_iter().rev() {
            let mut length = vec![];
            let mut rest = nested.len();
            while rest > 127 {
                length.push(rest as u8 | 128);
                rest >>= 7;
            }
            length.push(rest as u8);
            nested = [vec![*tag], length, nested].concat();
        }
        assert!(check(&nested).is_ok(), "only what leads on is followed");
    }

    #[test]
    fn what_lies_too_deep_is_refused() {
        let within = |tags: &[u8], mut inner: Vec<u8>| {
            for tag in tags.iter().rev() {
                let (low, high) = (inner.len() as u8 & 127 | 128, (inner.len() >> 7) as u8);
                inner = [vec![*tag, low, high], inner].concat();
            }
            inner
        };
        let mut graph = vec![];
        for _ in 0..30 {
            // Node, attribute, graph.
            graph = within(&[0x0a, 0x2a, 0x32], graph);
        }
        let model = within(&[0x3a], graph);
        assert!(check(&model).unwrap_err().ends_with("more than 64 messages lie within each other"));
    }
}
