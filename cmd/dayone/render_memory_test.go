package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlyPagesThatNothingHasWrittenAreForgotten(t *testing.T) {
	const smaps = `00400000-00403000 r-xp 00000000 fe:00 7    /usr/bin/dayone
Rss:                  12 kB
Anonymous:             0 kB
00500000-00503000 r--p 00000000 fe:00 7    /usr/bin/dayone
Anonymous:             4 kB
00600000-00603000 rw-p 00000000 fe:00 7    /usr/bin/dayone
Anonymous:             0 kB
00700000-00703000 r-xp 00000000 fe:00 8    /lib/other
Anonymous:             0 kB
`
	assert.Equal(t, []mapping{{0x400000, 0x403000}}, cleanMappings([]byte(smaps), "/usr/bin/dayone"))
}
