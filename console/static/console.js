'use strict';
// Pages work without this file. It keeps rows live, follows output, and copies commands.

// Live rows: the server sends them whenever they change. They are left alone while the person uses a form among them.
const live = document.getElementById('live');
if (live && live.dataset.live) {
	const source = new EventSource(live.dataset.live);
	const pulse = document.querySelector('.pulse');
	source.onopen = () => { pulse.hidden = false; };
	source.onerror = () => { pulse.hidden = true; };
	source.onmessage = (event) => {
		if (live.querySelector('details[open]') || live.contains(getSelection().anchorNode) && !getSelection().isCollapsed) return;
		const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
		live.innerHTML = event.data;
		if (focused) live.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
	};
}

// Output: frames are appended as they are written.
const output = document.getElementById('output');
if (output) {
	const source = new EventSource(output.dataset.frames);
	source.onmessage = (event) => {
		const frame = JSON.parse(event.data);
		const row = document.createElement('li'), kind = document.createElement('span'), text = document.createElement('pre');
		kind.className = 'quiet';
		kind.textContent = `${frame.attempt} ${frame.type}`;
		text.textContent = frame.text;
		row.append(kind, ' ', text);
		const end = output.scrollTop + output.clientHeight >= output.scrollHeight - 4;
		output.append(row);
		while (output.children.length > 1000) output.firstElementChild.remove();
		if (end) output.scrollTop = output.scrollHeight;
	};
	source.addEventListener('end', () => source.close());
}

for (const button of document.querySelectorAll('.copy')) {
	button.hidden = false;
	button.addEventListener('click', async () => {
		await navigator.clipboard.writeText(button.previousElementSibling.textContent);
		button.textContent = 'Copied';
		setTimeout(() => { button.textContent = 'Copy'; }, 1500);
	});
}
