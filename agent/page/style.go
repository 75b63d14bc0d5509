package page

import (
	"crypto/sha256"
	"encoding/base64"
)

// style is the page's only style. Rows of the table are blocks on narrow screens.
const style = `:root{--bg:#f4f5f7;--card:#fff;--text:#1c2126;--dim:#5c6670;--line:#dfe3e8;--link:#0b5cad;--ok:#177245;--okbg:#e2f4e9;--bad:#b3261e;--badbg:#fce8e6}
@media(prefers-color-scheme:dark){:root{--bg:#101418;--card:#191f25;--text:#e3e8ec;--dim:#98a4af;--line:#2b343d;--link:#7cb8ff;--ok:#6fd39b;--okbg:#143324;--bad:#ff9d94;--badbg:#40191a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
main{max-width:1080px;margin:0 auto;padding:16px}
a{color:var(--link)}
header,h2,nav{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 12px}
h1{font-size:22px;margin:0}
h2{font-size:16px;margin:24px 0 6px}
nav{margin:4px 0 8px}
h2 small,nav,footer,.dim{color:var(--dim);font-size:13px;font-weight:400}
nav b{color:var(--text)}
.pill{padding:2px 10px;border-radius:99px;font-weight:600;font-size:14px;color:var(--ok);background:var(--okbg)}
.pill.bad{color:var(--bad);background:var(--badbg)}
.card,ul,dl,table{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:0}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:14px 0}
.tiles div{padding:10px 14px}
.tiles b{display:block;font-size:22px;line-height:1.2;font-variant-numeric:tabular-nums}
ul{list-style:none;padding:6px 14px}
li{padding:4px 0}
.bad{color:var(--bad)}
ul.bad{background:var(--badbg);border-color:var(--bad);margin-top:14px}
dl{display:grid;grid-template-columns:max-content 1fr;padding:8px 14px;gap:4px 16px}
dt{color:var(--dim)}
dd{margin:0}
table{width:100%;border-collapse:separate;border-spacing:0}
th,td{text-align:left;vertical-align:top;padding:6px 12px;border-top:1px solid var(--line);overflow-wrap:break-word}
.s{overflow-wrap:anywhere;min-width:9em}
.t{white-space:nowrap}
tr:first-child th{border:0;font-size:13px;font-weight:600;color:var(--dim)}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td small{display:block;font-size:13px}
footer{margin-top:16px}
@media(max-width:680px){main{padding:12px}.tiles{grid-template-columns:1fr 1fr;gap:8px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:6px}
thead{display:none}tr{display:grid;grid-template-columns:repeat(3,1fr);column-gap:8px;padding:8px 14px;border-top:1px solid var(--line)}tbody tr:first-child{border:0}
td,.n{border:0;padding:1px 0;text-align:left}.s{grid-column:1/4;font-weight:600}.a{grid-column:1/4}.p{grid-column:1/3}td small{font-weight:400}
.a,.p,.t{color:var(--dim);font-size:13px}td[data-l]::before{content:attr(data-l) " ";color:var(--dim);font-size:13px}}
`

// stylePolicy lets a browser use that style and load nothing, not even an icon.
var stylePolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()
