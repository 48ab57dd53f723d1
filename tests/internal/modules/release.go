package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// Release prepares a release in the repository at root: the released modules require each other at the version, in a
// commit with an annotated tag for each module. Release pushes nothing, and returns the tags.
func Release(root, version string) ([]string, error) {
	if err := checkRelease(root, version); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	proxy, err := NewProxy(root, folder, version)
	if err != nil {
		return nil, err
	}
	for name, content := range proxy.Files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	changed, err := git(root, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		if _, err := git(root, "commit", "--quiet", "--all", "--message", "release: require "+version+" of each other"); err != nil {
			return nil, err
		}
	}
	var tags []string
	for _, moduleFolder := range Released {
		tag := Tag(moduleFolder, version)
		if _, err := git(root, "tag", "--annotate", "--message", tag, tag); err != nil {
			return nil, err
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

// checkRelease returns why a version can't be released from the present repository.
func checkRelease(root, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version like v0.1.0", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("the modules' paths would have to end in /%s", major)
	}
	if err := CheckRequirements(root); err != nil {
		return err
	}
	changed, err := git(root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("there are changes that are not committed:\n%s", changed)
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	section := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(strings.TrimPrefix(version, "v")) + `\] - \d{4}-\d{2}-\d{2}$`)
	if !section.Match(changelog) {
		return fmt.Errorf("CHANGELOG.md has no section %q", "## ["+strings.TrimPrefix(version, "v")+"] - YYYY-MM-DD")
	}
	var errs []error
	for _, folder := range Released {
		found, err := git(root, "tag", "--list", Tag(folder, version))
		if err != nil {
			return err
		}
		if found != "" {
			errs = append(errs, fmt.Errorf("there is a tag %s already", Tag(folder, version)))
		}
	}
	return errors.Join(errs...)
}
