package browser

// contrastScript gives the page functions that measure contrast as WCAG 2.2 defines it, from the colours that the
// browser computed.
const contrastScript = `(() => {
	window.rgb = text => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return {of: [r, g, b], a}; };
	window.ground = e => {
		const {of, a} = rgb(getComputedStyle(e).backgroundColor);
		return a == 1 ? of : over(of, a, e.parentElement ? ground(e.parentElement) : [255, 255, 255]);
	};
	window.over = (top, a, under) => top.map((c, i) => c * a + under[i] * (1 - a));
	window.linear = v => v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
	window.light = c => { const [r, g, b] = c.map(linear);
		return .2126 * r + .7152 * g + .0722 * b; };
	window.contrast = (colour, e) => { const under = ground(e), {of, a} = rgb(colour);
		const [low, high] = [light(over(of, a, under)), light(under)].sort((x, y) => x - y);
		return (high + .05) / (low + .05); };
	window.texts = () => [...document.querySelectorAll('body *')].filter(e => e.localName != 'script' &&
		[...e.childNodes].some(n => n.nodeType == Node.TEXT_NODE && n.data.trim()));
	window.faint = () => texts().map(e => [contrast(getComputedStyle(e).color, e), e]).filter(([c]) => !(c >= 4.5)).
		map(([c, e]) => c.toFixed(2) + ' ' + e.outerHTML);
	return 'ready';
})()`

// MeasureContrast gives the page functions for further expressions: contrast(colour, element) is that of a colour on
// the element's background, texts() are the elements with text, faint() names those below 4.5, which is what level AA
// of WCAG 2.2 wants.
func (p *Page) MeasureContrast() {
	p.t.Helper()
	if p.Text(contrastScript) != "ready" {
		p.t.Fatal("drive the browser: the page does not measure contrast")
	}
}
