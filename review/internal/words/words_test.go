package words

import "testing"

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is written %q", n, got)
		}
	}
}

func TestCutLeavesOutSeveral(t *testing.T) {
	list := []int{1, 2, 3, 4}
	for most, want := range map[int]int{2: 2, 3: 0, 4: 0, 9: 0} {
		if shown, rest := Cut(list, most); rest != want || len(shown)+rest != len(list) {
			t.Errorf("of 4 entries and at most %d, %d are left out", most, rest)
		}
	}
	if More(1200) != "1,200 more" {
		t.Error(More(1200))
	}
}
