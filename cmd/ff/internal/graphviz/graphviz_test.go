package graphviz_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// Any program that links the package keeps the machine code out of the directory for temporary files, and finds that
// directory unchanged.
func TestMachineCodeIsNotInAPublicFolder(t *testing.T) {
	const asked = "FF_PRINT_TEMPORARY"
	if os.Getenv(asked) != "" {
		fmt.Println("temporary files:", os.TempDir())
		return
	}
	if runtime.GOOS == "windows" {
		t.Skip("each user has a directory for temporary files")
	}
	for name, home := range map[string]string{"private cache": t.TempDir(), "no cache": ""} {
		folder := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = []string{asked + "=1", "TMPDIR=" + folder, "HOME=" + home}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "temporary files: "+folder+"\n") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: in the directory for temporary files are %v, %v", name, left, err)
		}
	}
}
