package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// skipped reports whether a folder is none of the project's own.
func skipped(base string) bool {
	return base == "testdata" || base == "vendor" || base == "node_modules" || len(base) > 1 && base[0] == '.'
}

// findMigrations returns the folder with the migrations: the wanted one, or the preferred one, or the only one of the
// project. The tool is decided here, unless the caller named one. A side without migrations has neither.
func (s *Side) findMigrations(wanted, preferred string) (string, error) {
	if wanted != "" {
		dir := path.Clean(filepath.ToSlash(wanted))
		if _, err := os.Stat(filepath.Join(s.Dir, dir)); errors.Is(err, fs.ErrNotExist) {
			return "", nil // the change creates the folder
		}
		return dir, errors.Join(s.decide(dir, true), s.passOver(dir))
	}
	folders, err := s.folders()
	if err != nil {
		return "", err
	}
	marked, plain := s.candidates(folders)
	dir := preferred
	if !holdsMigrations(folders[preferred], preferred) {
		if dir, err = s.choose(folders, marked, plain); err != nil || dir == "" {
			return "", err
		}
	}
	if folders[preferred] != nil {
		plain = append(plain, preferred)
	}
	s.unreadFolders(dir, slices.Concat(marked, plain))
	return dir, s.decide(dir, false)
}

// passOver records the other folders that may hold migrations: the caller chose one.
func (s *Side) passOver(chosen string) error {
	folders, err := s.folders()
	if err != nil {
		return err
	}
	marked, plain := s.candidates(folders)
	for _, dir := range slices.Concat(marked, plain) {
		switch {
		case dir == chosen || strings.HasPrefix(dir, chosen+"/"):
		case dir == ".":
			files, err := s.sqlFilesIn(dir)
			if err != nil {
				return err
			}
			s.PassedOver = append(s.PassedOver, files...)
		default:
			s.PassedOver = append(s.PassedOver, dir)
		}
	}
	slices.Sort(s.PassedOver)
	return nil
}

// holdsMigrations reports whether a folder has migrations of a tool, or of several.
func holdsMigrations(f *folder, dir string) bool {
	if f == nil {
		return false
	}
	tool, err := f.tool(dir)
	return err != nil || tool != ""
}

// unreadFolders reports the folders that may hold migrations, apart from the chosen one and folders below.
func (s *Side) unreadFolders(chosen string, candidates []string) {
	why := "it may hold migrations, but those of `" + chosen + "` were reviewed: name the folder with --migrations-dir"
	for _, dir := range candidates {
		switch {
		case dir == chosen || strings.HasPrefix(dir, chosen+"/"):
		case dir == ".":
			files, err := s.sqlFilesIn(dir)
			if err != nil {
				s.unread(dir, why)
			}
			for _, file := range files {
				s.unreadIfChanged(file, why)
			}
		default:
			s.unreadIfChanged(dir, why)
		}
	}
}

// folders returns the facts about each folder with files of a migration tool.
func (s *Side) folders() (map[string]*folder, error) {
	found := map[string]*folder{}
	err := fs.WalkDir(os.DirFS(s.Dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		return s.look(found, path.Dir(name), entry.Name())
	})
	return found, err
}

func (s *Side) look(found map[string]*folder, dir, name string) error {
	isGo := gooseName.MatchString(name) && strings.HasSuffix(name, ".go")
	if !strings.HasSuffix(name, ".sql") && name != "atlas.sum" && name != "tern.conf" && !isGo {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, dir, name))
	if err != nil {
		return err
	}
	if found[dir] == nil {
		found[dir] = &folder{}
	}
	found[dir].add(name, string(text))
	return nil
}

// candidates returns the folders with a tool's marks, and folders with numbered files if sqlc reads the folder or it is
// named for migrations.
func (s *Side) candidates(folders map[string]*folder) (marked, plain []string) {
	for dir, f := range folders {
		switch {
		case len(f.marked) == 1 && f.marked[0] == Tern && f.numbered == 0, len(f.marked) == 1 && f.marked[0] == Atlas && f.numbered+f.other == 0:
			// A configuration at the root of the project.
		case len(f.marked) > 0:
			marked = append(marked, dir)
		case f.foreign != "" || f.numbered > 0 && (s.isSchema(dir) || strings.Contains(strings.ToLower(path.Base(dir)), "migrat")):
			plain = append(plain, dir)
		}
	}
	return marked, plain
}

// choose returns the folder of the migrations: the only one with a tool's marks, or else the only other one.
func (s *Side) choose(folders map[string]*folder, marked, plain []string) (string, error) {
	dirs := slices.Clone(marked)
	if len(dirs) == 0 {
		dirs = slices.Clone(plain)
	}
	slices.Sort(dirs)
	if len(dirs) > 1 && s.onlyFlyway(folders, dirs) {
		return dirs[0], nil
	}
	if usual := path.Clean(s.environment("DBMATE_MIGRATIONS_DIR", "db/migrations")); len(dirs) > 1 && slices.Contains(dirs, usual) {
		return usual, nil
	}
	if len(dirs) > 1 {
		return "", fmt.Errorf("several folders hold migrations, and one has to be named with --migrations-dir: %s", strings.Join(dirs, ", "))
	}
	return strings.Join(dirs, ""), nil
}

// onlyFlyway reports whether the folders are Flyway's and below the first: Flyway reads all together.
func (s *Side) onlyFlyway(folders map[string]*folder, dirs []string) bool {
	for i, dir := range dirs {
		if !slices.Equal(folders[dir].marked, []Tool{Flyway}) || i > 0 && !strings.HasPrefix(dir, dirs[0]+"/") {
			return false
		}
	}
	return true
}

// isSchema reports whether sqlc reads the schema from the folder.
func (s *Side) isSchema(dir string) bool {
	return slices.ContainsFunc(s.Packages, func(p *SQLC) bool { return slices.Contains(p.Schema, dir) })
}

// decide decides which tool a folder belongs to. A folder the caller names may hold any SQL files.
func (s *Side) decide(dir string, named bool) error {
	if s.Tool != "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(s.Dir, dir))
	if err != nil {
		return err
	}
	found := map[string]*folder{dir: {}}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		if err := s.look(found, dir, entry.Name()); err != nil {
			return err
		}
	}
	f := found[dir]
	if s.Tool, err = f.tool(dir); err != nil || s.Tool != "" {
		return err
	}
	if named && f.other > 0 {
		s.Tool = Plain
		return nil
	}
	if named {
		return s.decideBelow(dir)
	}
	return fmt.Errorf("%s holds no migrations", dir)
}

// decideBelow takes a folder without SQL files for Flyway's if folders below have Flyway's files.
func (s *Side) decideBelow(dir string) error {
	names, err := s.filesOf(dir, true)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.Contains(marks(path.Base(name), ""), Flyway) {
			s.Tool = Flyway
			return nil
		}
	}
	return nil
}
