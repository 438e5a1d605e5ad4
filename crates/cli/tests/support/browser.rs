//! Pages as a real browser draws them: Debian's `chromium`, without a window and without a network.
//!
//! It has one font, which the test chooses: how wide words are differs by a seventh between the fonts that
//! desktops have, and what a machine prefers is none of a test's business. A script of the test in the page
//! leaves what it sees in the document. Without the browser or the fonts a test says so and passes; with
//! `POUNDLOCK_REAL=require` in the environment it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{LIMIT, expect_status, need, need_file, run_limited};

/// The browser makes no narrower window.
const NARROWEST_WINDOW: u32 = 500;

/// A font by the width of its digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Font {
    /// Liberation Sans, as wide as Arial.
    Narrow,
    /// DejaVu Sans, the default of most Linux desktops.
    Wide,
    /// DejaVu Sans Mono, for those who want all of their text so. Its small letters and strokes are as wide
    /// as its digits.
    Even,
}

impl Font {
    fn family(self) -> &'static str {
        match self {
            Font::Narrow => "Liberation Sans",
            Font::Wide => "DejaVu Sans",
            Font::Even => "DejaVu Sans Mono",
        }
    }

    /// How wide a digit is, as a share of the font's size.
    fn digit(self) -> std::ops::Range<f64> {
        match self {
            Font::Narrow => 0.55..0.57,
            Font::Wide => 0.63..0.65,
            Font::Even => 0.59..0.61,
        }
    }

    fn file(self) -> Option<PathBuf> {
        let (files, package) = match self {
            Font::Narrow => (
                &["liberation/LiberationSans-Regular.ttf", "liberation2/LiberationSans-Regular.ttf"][..],
                "fonts-liberation",
            ),
            Font::Wide => (&["dejavu/DejaVuSans.ttf"][..], "fonts-dejavu-core"),
            Font::Even => (&["dejavu/DejaVuSansMono.ttf"][..], "fonts-dejavu-core"),
        };
        let places = files.iter().map(|file| Path::new("/usr/share/fonts/truetype").join(file));
        need_file(self.family(), places, package)
    }
}

/// The browser, and how it is to draw.
pub(crate) struct Browser {
    program: PathBuf,
    fonts: [PathBuf; 3],
}

/// What a page is drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) scheme: &'static str,
    pub(crate) font: Font,
}

/// A telephone and a desk, both schemes of colours, all fonts: the one with the widest small letters where there is
/// little room.
pub(crate) const VIEWS: [View; 3] = [
    View { width: 380, scheme: "light", font: Font::Even },
    View { width: 1400, scheme: "dark", font: Font::Narrow },
    View { width: 1400, scheme: "light", font: Font::Wide },
];

/// What the browser saw of a page.
pub(crate) struct Seen {
    /// What the test's script found.
    pub(crate) findings: Value,
    /// What the browser said on standard error of scripts.
    pub(crate) console: Vec<String>,
}

impl Seen {
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.findings[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.findings))
    }
}

impl Browser {
    /// `None` if it is not installed.
    #[track_caller]
    pub(crate) fn installed() -> Option<Browser> {
        let program = need("chromium", "chromium")?;
        Some(Browser { program, fonts: [Font::Narrow.file()?, Font::Wide.file()?, Font::Even.file()?] })
    }

    /// Loads each page in a frame, with `probe` in it, which is a script that calls `found` with what it saw.
    #[track_caller]
    pub(crate) fn draw<const N: usize>(&self, pages: [&str; N], probe: &str, view: View) -> [Seen; N] {
        let directory = tempfile::tempdir().unwrap();
        let mut document =
            "<!DOCTYPE html><meta charset=utf-8><title>frames</title><body style=margin:0>".to_owned();
        for (number, page) in pages.iter().enumerate() {
            assert_eq!(page.matches("</body>").count(), 1);
            let script = format!(
                "<script>const found = findings => {{
                    const ruler = document.createElement('span');
                    ruler.textContent = '0000000000';
                    ruler.style.fontSize = '100px';
                    document.body.append(ruler);
                    const out = parent.document.createElement('pre');
                    out.id = 'probe{number}';
                    out.textContent = JSON.stringify({{ ...findings,
                        digit: ruler.getBoundingClientRect().width / 1000, width: innerWidth,
                        scheme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light' }});
                    parent.document.body.append(out);
                }};
                {probe}</script></body>"
            );
            let page = page.replacen("</body>", &script, 1).replace('&', "&amp;").replace('"', "&quot;");
            document += &format!(
                "<iframe style=border:0;display:block width={} height=900 srcdoc=\"{page}\"></iframe>",
                view.width
            );
        }
        let file = directory.path().join("page.html");
        std::fs::write(&file, document).unwrap();
        let output = run_limited(self.command(directory.path(), view).arg("--dump-dom").arg(&file), LIMIT);
        expect_status(&output, 0);
        let dom = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let console: Vec<_> =
            stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        std::array::from_fn(|number| {
            let findings = dom.split_once(&format!("<pre id=\"probe{number}\">"));
            let Some((findings, _)) = findings.and_then(|(_, rest)| rest.split_once("</pre>")) else {
                let end: String = dom.chars().skip(dom.chars().count().saturating_sub(2000)).collect();
                panic!("no findings; standard error:\n{stderr}\n{end}")
            };
            let findings = findings.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
            let findings: Value = serde_json::from_str(&findings).unwrap();
            assert_eq!((&findings["width"], &findings["scheme"]), (&view.width.into(), &view.scheme.into()));
            let digit = findings["digit"].as_f64().unwrap();
            assert!(view.font.digit().contains(&digit), "{view:?}: digits are {digit} wide");
            Seen { findings, console: console.clone() }
        })
    }

    /// Without a window, a network, or anything that it has on disk; with one font.
    fn command(&self, scratch: &Path, view: View) -> Command {
        let fonts = scratch.join("fonts.conf");
        let directory = self.fonts[view.font as usize].parent().expect("a file lies in a directory");
        let text = format!(
            "<?xml version=\"1.0\"?><!DOCTYPE fontconfig SYSTEM \"fonts.dtd\"><fontconfig><dir>{}</dir>\
             <cachedir>{}</cachedir><match target=\"pattern\"><edit name=\"family\" mode=\"assign\" \
             binding=\"strong\">\
             <string>{}</string></edit></match></fontconfig>",
            directory.display(),
            scratch.join("fonts").display(),
            view.font.family()
        );
        std::fs::write(&fonts, text).unwrap();
        let mut command = Command::new(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--no-first-run",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            // Nobody listens there, and no name leads anywhere.
            "--proxy-server=127.0.0.1:9",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ]);
        command
            .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
            .arg(format!("--window-size={},900", view.width.max(NARROWEST_WINDOW)))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(view.scheme == "light")))
            .env("HOME", scratch)
            .env("FONTCONFIG_FILE", fonts);
        command
    }
}
