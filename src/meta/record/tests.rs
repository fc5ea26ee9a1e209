//! Records come from stores that are not trusted: any bytes must decode to a record or to an error.

use proptest::collection::vec;
use proptest::prelude::*;

use super::chunk::SLICE_LEN;
use super::*;
use crate::meta::Name;

/// Bytes of any length, often one that a record can have.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![
        0usize..200,
        Just(Entry::LEN),
        Just(72),
        Just(80),
        Just(Quota::LEN),
        (1usize..9).prop_map(|count| count * SLICE_LEN),
        (1usize..9).prop_map(|count| count * 24),
    ];
    lengths.prop_flat_map(|length| vec(any::<u8>(), length))
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_record_or_an_error(raw in bytes()) {
        if let Ok(attr) = Attr::decode(&raw) {
            assert!(attr.space() >= 4096);
            assert_eq!(Attr::decode(&attr.encode()).unwrap(), attr);
        }
        if let Ok(slices) = chunk::decode(&raw) {
            assert!(slices.len() * SLICE_LEN <= raw.len());
        }
        if let Ok(ranges) = lock::decode_ranges(&raw) {
            assert!(ranges.len() <= raw.len());
        }
        if let Ok(slices) = delayed_slices::decode(&raw) {
            assert!(slices.len() <= raw.len());
        }
        let _ = Entry::decode(&raw);
        let _ = Quota::decode(&raw);
        let _ = DirStat::decode(&raw);
        let _ = AclRule::decode(&raw);
        let _ = acl::decode_entries(&raw);
        let _ = SessionInfo::decode(&raw);
        if let Ok(name) = Name::new(&raw) {
            let _ = (Trashed::parse(&name), trash::parse_hour(&name));
        }
    }

    #[test]
    fn any_records_can_be_viewed_and_compacted(raw in vec(vec(any::<u8>(), SLICE_LEN), 0..12)) {
        let Ok(slices) = chunk::decode(&raw.concat()) else { return Ok(()) };
        let visible = visible_slices(&slices);
        assert!(visible.len() <= 4 * slices.len() + 1);
        let _ = plan_compaction(&slices);
    }
}
