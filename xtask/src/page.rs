//! Does the live page work in a browser? A program shows it, headless Chromium opens it, and what it made of it is read.

use std::process::Command;
use std::time::Instant;

use crate::leash::Leashed;
use crate::progress::doing;
use crate::report::Tally;
use crate::{run, setup};

const PORT: u16 = 19_880;
/// Milliseconds of the page's own time: a few of its updates.
const PAGE_TIME: &str = "--virtual-time-budget=6000";

/// What the page must show, and must not.
const SHOWN: &[(&str, &str)] = &[
    ("the state of the whole", "id=\"state\" class=\"bad\">stalled</span>"),
    ("the client", "<h2>Client 1, group page-group</h2>"),
    ("finished messages", "<b>201</b><span>messages ok</span>"),
    ("a partition", "<td>orders[0]</td>"),
    ("the stalled one", ">stalled</td>"),
    ("a key, as text", "slow &lt;img src=x onerror=document.title='broken'&gt;"),
    ("a deferred key and its age", "<td>1, oldest "),
    ("a due timer and for how long", "<td>1, overdue "),
    ("that it is fresh", "every second."),
];
const HIDDEN: &[(&str, &str)] = &[("markup made of a key", "<img"), ("a script that ran", "<title>broken")];

pub(crate) fn suite() -> Tally {
    let (browser, program) = match (setup::chromium(), run::example("page", run::Profile::Dev)) {
        (Ok(browser), Ok(program)) => (browser, program),
        (Err(why), _) => return Tally::skipped(why),
        (_, Err(why)) => return Tally::failed(why),
    };
    let mut shows = Command::new(program);
    shows.args(["--port", &PORT.to_string()]);
    let _shows = match Leashed::spawn(&mut shows) {
        Ok(shows) => shows,
        Err(why) => return Tally::failed(why),
    };
    let mut tally = Tally::default();
    for (name, window) in [("on a desk", "1280,900"), ("on a phone", "390,844")] {
        doing(&format!("the page {name}"));
        let start = Instant::now();
        let verdict = seen(browser, window).into();
        tally.count(&format!("the page {name}"), verdict, start.elapsed());
    }
    tally
}

fn seen(browser: &str, window: &str) -> Result<(), String> {
    let page = open(browser, window)?;
    let missing = SHOWN.iter().filter(|(_, text)| !page.contains(text)).map(|(what, _)| format!("no {what}"));
    let wrong = HIDDEN.iter().filter(|(_, text)| page.contains(text)).map(|(what, _)| (*what).to_owned());
    let problems: Vec<String> = missing.chain(wrong).collect();
    if problems.is_empty() { Ok(()) } else { Err(format!("{}\n{page}", problems.join(", "))) }
}

/// The page once it shows a stalled partition, for which it needs a few seconds after the start.
fn open(browser: &str, window: &str) -> Result<String, String> {
    let mut page = String::new();
    for _ in 0..10 {
        let mut chromium = Command::new(browser);
        chromium
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", PAGE_TIME])
            .args([format!("--window-size={window}"), format!("http://127.0.0.1:{PORT}/")]);
        let ran = run::logged("page", &mut chromium)?;
        page = ran.output;
        if page.contains(">stalled</td>") {
            break;
        }
    }
    Ok(page)
}
