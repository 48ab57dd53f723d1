package core

import (
	"fmt"
	"testing"
	"time"
)

func TestKeyCache(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	var c KeyCache
	want := func(what, kid string, at time.Duration, found, read bool) {
		t.Helper()
		if key, again := c.Get(kid, now.Add(at)); (key != nil) != found || again != read {
			t.Errorf("%s: found %v, reads %v; want %v, %v", what, key != nil, again, found, read)
		}
	}
	fill := func() {
		c.Keep(map[string]VerifyingKey{"k1": {Until: now.Add(time.Second)}, "k2": {Until: now.Add(time.Hour)}}, now, c.Began())
	}
	want("empty", "k1", 0, false, true)
	fill()
	want("in its grace", "k1", time.Second-1, true, false)
	want("after its grace", "k1", time.Second, false, false)
	want("active", "k2", KeyCacheTTL-1, true, false)
	want("too old", "k2", KeyCacheTTL, false, true)
	want("read in the future", "k2", -1, false, true)
	c.forget()
	want("forgotten", "k2", 0, false, true)
	mark := c.Began()
	c.forget()
	c.Keep(map[string]VerifyingKey{"k1": {}}, now, mark)
	want("read before a rotation", "k1", 0, false, true)
}

func TestKeyCacheLimitsReadsForUnknownKeys(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	var c KeyCache
	for second := range 3 {
		at := now.Add(time.Duration(second) * time.Second)
		c.Keep(map[string]VerifyingKey{"k1": {Until: at.Add(time.Hour)}}, at, c.Began())
		reads := 0
		for n := range 1000 {
			if _, read := c.Get(fmt.Sprint("made-up ", n), at); read {
				reads++
			}
		}
		if reads != maxUnknownKeys {
			t.Errorf("%d reads in second %d", reads, second)
		}
		if key, read := c.Get("k1", at); key == nil || read {
			t.Error("a known key is not found beside unknown ones")
		}
	}
}
