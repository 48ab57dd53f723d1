package container

import "testing"

// A container with other settings must not be taken for this one.
func TestContainerNameDependsOnTheSettings(t *testing.T) {
	names := map[string]string{containerName("postgres:15"): "the default"}
	want := func(what, name string) {
		t.Helper()
		if other, taken := names[name]; taken {
			t.Errorf("%s and %s share the name %s", what, other, name)
		}
		names[name] = what
	}
	want("another image", containerName("postgres:18"))

	oldCommand, oldAccess := command, access
	t.Cleanup(func() { command, access = oldCommand, oldAccess })
	command = append(oldCommand[:len(oldCommand):len(oldCommand)], "-c", "fsync=on")
	want("another setting", containerName("postgres:15"))
	command, access = oldCommand, "host all all all trust\n"
	want("another method", containerName("postgres:15"))
}
