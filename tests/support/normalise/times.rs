//! Times: what was set on purpose stays, what the clock gave becomes an order.

use serde_json::{Map, Value, json};

/// Seconds and nanoseconds.
pub type Time = (i64, u64);

/// Clocks of machines that run this are past it (2020-09-13); scripts set times before it.
const CLOCK: i64 = 1_600_000_000;

/// The three times of a node: explicit ones literally, clock times as `now`. For anything but a
/// directory, also in which order they came: `a=m<c`. Directories have none, since a client may
/// leave a parent's times alone if they are younger than 100 ms.
pub fn show(is_dir: bool, atime: Time, mtime: Time, ctime: Time) -> Value {
    let times = [("a", "atime", atime), ("m", "mtime", mtime), ("c", "ctime", ctime)];
    let mut out = Map::new();
    let mut clock = Vec::new();
    for (short, name, (sec, nsec)) in times {
        if sec < CLOCK {
            out.insert(name.to_owned(), json!(format!("{sec}.{nsec:09}")));
        } else {
            out.insert(name.to_owned(), json!("now"));
            clock.push(((sec, nsec), short));
        }
    }
    if !is_dir {
        clock.sort_by_key(|(time, _)| *time);
        let mut order = String::new();
        for (i, (time, short)) in clock.iter().enumerate() {
            if i > 0 {
                order.push(if clock[i - 1].0 == *time { '=' } else { '<' });
            }
            order.push_str(short);
        }
        out.insert("order".to_owned(), json!(order));
    }
    Value::Object(out)
}
