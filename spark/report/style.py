"""The looks of the page: light, dark, on a phone, on paper."""

from kcast.loadtest.charts.svg import STYLE as CHARTS

STYLE = (
    CHARTS
    + """\
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;
font-variant-numeric:tabular-nums}
main,header,footer{max-width:868px;margin:0 auto;padding:0 24px}
header{padding-top:56px}
.brand{margin:0;color:var(--soft);font-size:14px;letter-spacing:.02em}
h1{margin:10px 0 14px;font-size:38px;line-height:1.15;font-weight:650;letter-spacing:-.02em;text-wrap:balance}
.lead{margin:0;font-size:18px;color:var(--soft);max-width:44em;text-wrap:pretty}
.lead b{color:var(--ink);font-weight:600}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1px;margin:32px 0 0;
padding:0;border:1px solid var(--rule);border-radius:10px;overflow:hidden}
.facts div{box-shadow:0 0 0 1px var(--rule);padding:14px 18px 15px}
.facts dd{margin:0;font-size:23px;font-weight:620;letter-spacing:-.01em;line-height:1.3}
.facts dt{color:var(--soft);font-size:13.5px;line-height:1.4}
.facts div{display:flex;flex-direction:column-reverse;justify-content:flex-end}
nav{margin:22px 0 0;font-size:14.5px;color:var(--soft)}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:0;padding:0}
a{color:inherit;text-decoration-color:var(--rule);text-underline-offset:3px}
a:hover{color:var(--c0);text-decoration-color:currentColor}
:focus-visible{outline:2px solid var(--c0);outline-offset:2px;border-radius:3px}
.notice{margin:30px 0 0;padding:16px 20px;border-radius:10px;background:var(--warn-back);
border-left:4px solid var(--warn)}
.notice+.notice{margin-top:12px}
.notice h2{margin:0 0 4px;font-size:17px;letter-spacing:0}
.notice p,.notice ul{margin:4px 0}.notice ul{padding-left:20px}.notice li{margin:3px 0}
.notice details{margin:8px 0 0}
section{margin:64px 0 0;padding:0;scroll-margin-top:20px}
h2{margin:0 0 8px;font-size:25px;line-height:1.25;font-weight:640;letter-spacing:-.012em}
h3{margin:26px 0 6px;font-size:16px;font-weight:620}
.says{margin:0 0 18px;font-size:17px;max-width:44em;text-wrap:pretty}
.badge{display:inline-flex;align-items:baseline;gap:.4em;padding:.04em .62em;border-radius:99px;
font-size:.82em;font-weight:600;white-space:nowrap;background:var(--raised);color:var(--soft)}
.badge.good{background:var(--good-back);color:var(--good)}
.badge.bad{background:var(--bad-back);color:var(--bad)}
.badge.warn{background:var(--warn-back);color:var(--warn)}
figure{margin:18px 0 0}
figcaption,.quiet{color:var(--soft);font-size:14px;line-height:1.5;max-width:54em;margin:8px 0 0;
text-wrap:pretty}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 12px;padding:0;font-size:14px}
.legend li{display:flex;align-items:center;gap:7px}
svg{display:block;height:auto;max-width:100%;overflow:visible}
svg.wide{width:100%}svg.narrow{display:none;width:100%;max-width:520px}
.swatch{flex:none;width:28px}
details{margin:16px 0 0}
summary{cursor:pointer;color:var(--soft);font-size:14.5px;width:fit-content}
summary:hover{color:var(--ink)}
.scroll{overflow-x:auto;margin:12px 0 0;border-top:1px solid var(--rule);border-bottom:1px solid var(--rule)}
table{border-collapse:collapse;font-size:14px;line-height:1.4;width:100%}
th,td{padding:7px 12px;text-align:right;white-space:nowrap;border-top:1px solid var(--rule);font-weight:400}
thead th{color:var(--soft);font-size:13px;border-top:0;vertical-align:bottom}
.words{text-align:left}
td.words{white-space:normal;min-width:8em}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--paper);text-align:left}
tbody th b{font-weight:600}
tbody th .long{white-space:normal;overflow-wrap:anywhere;display:block;min-width:11em;max-width:15em}
.sub{display:block;color:var(--soft);font-size:12.5px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.claims{list-style:none;margin:20px 0 0;padding:0}
.claims>li{padding:16px 0 17px;border-top:1px solid var(--rule);display:grid;
grid-template-columns:1fr max-content;gap:4px 20px}
.claims>li:last-child{border-bottom:1px solid var(--rule)}
.claims q{font-size:16.5px;font-weight:600;quotes:'“' '”'}
.claims .badge{align-self:start;font-size:13.5px;justify-self:end}
.claims p{margin:0;grid-column:1/-1;color:var(--soft);font-size:14.5px;max-width:50em}
.claims p b{color:var(--ink);font-weight:600}
dl.terms{display:grid;grid-template-columns:max-content 1fr;gap:7px 22px;font-size:14.5px;margin:16px 0 0}
dl.terms dt{font-weight:600}dl.terms dd{margin:0;color:var(--soft)}
footer{margin-top:72px;padding-top:20px;padding-bottom:64px;color:var(--soft);font-size:14px}
footer p{margin:4px 0}
code{font:.92em ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}
@media (max-width:720px){
main,header,footer{padding-left:16px;padding-right:16px}
header{padding-top:32px}h1{font-size:29px}.lead,.says{font-size:16px}.facts dd{font-size:20px}
.facts{grid-template-columns:1fr 1fr}.facts div{padding:11px 14px 12px}
section{margin-top:52px}h2{font-size:22px}
svg.wide{display:none}svg.narrow{display:block}
.claims>li{grid-template-columns:1fr}.claims .badge{justify-self:start;order:-1}
dl.terms{grid-template-columns:1fr;gap:2px}dl.terms dd{margin-bottom:8px}
th,td{padding:6px 7px}td.words{min-width:13em}
nav ul{gap:4px 14px}}
@media print{
:root{--paper:#fff;--ink:#000}
body{font-size:10.5pt}main,header,footer{max-width:none;padding:0}
nav{display:none}section{margin-top:30pt}figure,tr,.claims>li{break-inside:avoid}
h2,h3,.says{break-after:avoid}
svg.wide{display:block}svg.narrow{display:none}
.scroll{overflow:visible}th,td{padding:3px 5px;font-size:7.5pt}.sub{font-size:6.5pt}
details:not([open]){display:none}}
@page{margin:15mm}
"""
)
