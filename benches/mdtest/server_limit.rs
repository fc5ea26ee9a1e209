//! The limit of server and loopback: plain GETs of a value as long as an attr, over one blocking
//! socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Result, ensure};

/// As long as a stored attr.
const VALUE: [u8; 72] = [b'a'; 72];

/// Returns GETs per second, with `width` of them in each write, whose replies are awaited before the next.
pub fn rate(port: u16, width: usize, count: usize) -> Result<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let answer = [b"$72\r\n", &VALUE[..], b"\r\n"].concat();
    stream.write_all(&[b"SET limit ", &VALUE[..], b"\r\n"].concat())?;
    stream.read_exact(&mut [0; 5])?;

    let question = b"*2\r\n$3\r\nGET\r\n$5\r\nlimit\r\n".repeat(width);
    let (expected, mut arrived) = (answer.repeat(width), vec![0; answer.len() * width]);
    let turns = (count / width).max(1);
    let start = Instant::now();
    for _ in 0..turns {
        stream.write_all(&question)?;
        stream.read_exact(&mut arrived)?;
        ensure!(arrived == expected, "unexpected reply of the server");
    }
    let rate = (turns * width) as f64 / start.elapsed().as_secs_f64();
    stream.write_all(b"DEL limit\r\n")?;
    stream.read_exact(&mut [0; 4])?;
    Ok(rate)
}
