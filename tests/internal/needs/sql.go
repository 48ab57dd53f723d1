package needs

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	pgquery "github.com/wasilibs/go-pgquery"
)

// right is a privilege on an object of the schema.
type right struct{ kind, object, privilege string }

type rightSet map[right]bool

// add adds the rights of another set, without the marks.
func (s rightSet) add(more rightSet) {
	for r := range more {
		if r.kind != body {
			s[r] = true
		}
	}
}

// parse returns the tree of statements in the parser's form as JSON: a node is an object of one member, named for the
// type.
func parse(text string) (tree any, err error) {
	document, err := pgquery.ParseToJSON(text)
	if err == nil {
		err = json.Unmarshal([]byte(document), &tree)
	}
	return tree, err
}

// walk calls visit for every object of a tree, with the member's name.
func walk(kind string, tree any, visit func(kind string, object map[string]any)) {
	switch node := tree.(type) {
	case []any:
		for _, item := range node {
			walk("", item, visit)
		}
	case map[string]any:
		visit(kind, node)
		for name, member := range node {
			walk(name, member, visit)
		}
	}
}

// at descends by names; nil if there is nothing.
func at(tree any, path ...string) any {
	for _, name := range path {
		node, ok := tree.(map[string]any)
		if !ok {
			return nil
		}
		tree = node[name]
	}
	return tree
}

func textAt(tree any, path ...string) string {
	text, _ := at(tree, path...).(string)
	return text
}

// last returns the last of a list of names.
func last(names any) string {
	list, _ := names.([]any)
	if len(list) == 0 {
		return ""
	}
	return textAt(list[len(list)-1], "String", "sval")
}

// database is the schema of the statements.
type database struct {
	relations map[string]bool
	views     map[string]any
	functions map[string]function
	triggers  map[string][]trigger
	nextIDs   map[string][]string // the sequences an INSERT into a table takes ids of
	outboxes  []string            // the sequences of the outboxes
	trees     map[string]any      // of parsed statements
}

type function struct{ signature, language, body string }

type trigger struct {
	event    string
	function string
}

var (
	createFunction = regexp.MustCompile(`(?s)CREATE FUNCTION (\w+)\(([^)]*)\) RETURNS [^\n]+\n\s+LANGUAGE (\w+)[^$]*AS (\$\w*\$)(.*?)\n(\$\w*\$);`)
	createTrigger  = regexp.MustCompile(`CREATE TRIGGER \w+ (?:AFTER|BEFORE) (INSERT|UPDATE|DELETE|TRUNCATE)[^;]*? ON (\w+) [^;]*EXECUTE FUNCTION (\w+)\(`)
	nextDefault    = regexp.MustCompile(`ALTER TABLE ONLY (\w+) ALTER COLUMN \w+ SET DEFAULT nextval\('(\w+)'`)
	identity       = regexp.MustCompile(`ADD GENERATED ALWAYS AS IDENTITY \(\s*SEQUENCE NAME (\w+)`)
)

func readDatabase(path string) (*database, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := string(source)
	d := &database{
		relations: make(map[string]bool), views: make(map[string]any), functions: make(map[string]function),
		triggers: make(map[string][]trigger), nextIDs: make(map[string][]string), trees: make(map[string]any),
	}
	tree, err := parse(text)
	if err != nil {
		return nil, err
	}
	walk("", tree, func(kind string, object map[string]any) {
		switch kind {
		case "CreateStmt":
			d.relations[textAt(object, "relation", "relname")] = true
		case "ViewStmt":
			name := textAt(object, "view", "relname")
			d.relations[name], d.views[name] = true, object["query"]
		}
	})
	for _, m := range createFunction.FindAllStringSubmatch(text, -1) {
		var types []string
		for argument := range strings.SplitSeq(m[2], ", ") {
			if mode, argumentType, ok := strings.Cut(argument, " "); ok && mode != "OUT" {
				argumentType, _, _ = strings.Cut(argumentType, " DEFAULT ")
				types = append(types, argumentType)
			}
		}
		d.functions[m[1]] = function{m[1] + "(" + strings.Join(types, ", ") + ")", m[3], m[5]}
	}
	if n := strings.Count(text, "\nCREATE FUNCTION "); n != len(d.functions) {
		return nil, fmt.Errorf("read %d of %d functions", len(d.functions), n)
	}
	for _, m := range createTrigger.FindAllStringSubmatch(text, -1) {
		d.triggers[m[2]] = append(d.triggers[m[2]], trigger{m[1], m[3]})
	}
	for _, m := range nextDefault.FindAllStringSubmatch(text, -1) {
		d.nextIDs[m[1]] = append(d.nextIDs[m[1]], m[2])
		d.outboxes = append(d.outboxes, m[2])
	}
	for _, m := range identity.FindAllStringSubmatch(text, -1) {
		d.outboxes = append(d.outboxes, m[1])
	}
	return d, nil
}

// table adds a privilege on a table, and the rights of the triggers.
func (d *database) table(rights rightSet, name, privilege string) error {
	if !d.relations[name] || rights[right{"TABLE", name, privilege}] {
		return nil
	}
	rights[right{"TABLE", name, privilege}] = true
	if privilege == "INSERT" {
		for _, sequence := range d.nextIDs[name] {
			rights[right{"SEQUENCE", sequence, "USAGE"}] = true
		}
	}
	for _, t := range d.triggers[name] {
		if t.event == privilege {
			if err := d.call(rights, t.function, true); err != nil {
				return err
			}
		}
	}
	if query := d.views[name]; query != nil {
		return d.viewed(rights, query)
	}
	return nil
}

// viewed adds the rights a view requires of readers: functions. The view's tables are read with the owner's rights.
func (d *database) viewed(rights rightSet, query any) error {
	var failed error
	walk("", query, func(kind string, object map[string]any) {
		if name := last(object["funcname"]); kind == "FuncCall" && failed == nil {
			failed = d.call(rights, name, false)
		}
		if name := textAt(object, "relname"); kind == "RangeVar" && d.views[name] != nil && failed == nil {
			failed = d.viewed(rights, d.views[name])
		}
	})
	return failed
}

// body is the kind of the mark a set has the rights of a function's body. So recursion ends for functions that call
// each other, and each set has all their rights together.
const body = "BODY"

// call adds the rights of a function. A trigger's needs no right to be executed.
func (d *database) call(rights rightSet, name string, byTrigger bool) error {
	f, ours := d.functions[name]
	if !ours {
		return nil
	}
	if !byTrigger {
		rights[right{"FUNCTION", f.signature, "EXECUTE"}] = true
	}
	mark := right{kind: body, object: name}
	if rights[mark] {
		return nil
	}
	rights[mark] = true
	if f.language == "sql" {
		return d.statements(rights, f.body)
	}
	return d.block(rights, f.body)
}

var (
	inserted = regexp.MustCompile(`^(?:%1\$I\.)?(ffx?_\w+)`)
	written  = regexp.MustCompile(`(UPDATE|DELETE FROM) (?:%1\$I\.)?(ffx?_\w+)`)
	from     = regexp.MustCompile(`(?:FROM|JOIN) (?:%1\$I\.)?(ffx?_\w+)`)
	called   = regexp.MustCompile(`\b(ffx?_\w+)\(`)
)

// block adds the rights of a function in PL/pgSQL, by the text: some statements are made at run time.
func (d *database) block(rights rightSet, text string) error {
	var needed [][2]string
	for _, insert := range strings.Split(text, "INSERT INTO ")[1:] { // one statement may have several
		m := inserted.FindStringSubmatch(insert)
		if m == nil {
			continue
		}
		needed = append(needed, [2]string{m[1], "INSERT"}, [2]string{m[1], "SELECT"})
		if statement, _, _ := strings.Cut(insert, ";"); strings.Contains(statement, "DO UPDATE") {
			needed = append(needed, [2]string{m[1], "UPDATE"})
		}
	}
	for _, m := range written.FindAllStringSubmatch(text, -1) {
		privilege, _, _ := strings.Cut(m[1], " ")
		needed = append(needed, [2]string{m[2], privilege}, [2]string{m[2], "SELECT"})
	}
	for _, m := range from.FindAllStringSubmatch(text, -1) {
		needed = append(needed, [2]string{m[1], "SELECT"})
	}
	for _, n := range needed {
		if err := d.table(rights, n[0], n[1]); err != nil {
			return err
		}
	}
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if err := d.call(rights, m[1], false); err != nil {
			return err
		}
	}
	return nil
}

// statements adds the rights of statements.
func (d *database) statements(rights rightSet, text string) error {
	tree, known := d.trees[text]
	if !known {
		var err error
		if tree, err = parse(text); err != nil {
			return fmt.Errorf("%w in %s", err, text)
		}
		d.trees[text] = tree
	}
	var failed error
	need := func(name string, privileges ...string) {
		for _, privilege := range privileges {
			if failed == nil {
				failed = d.table(rights, name, privilege)
			}
		}
	}
	walk("", tree, func(kind string, object map[string]any) {
		target := textAt(object, "relation", "relname")
		switch kind {
		case "RangeVar":
			need(textAt(object, "relname"), "SELECT")
		case "InsertStmt":
			need(target, "INSERT")
			if object["returningList"] != nil || object["onConflictClause"] != nil {
				need(target, "SELECT")
			}
			if textAt(object, "onConflictClause", "action") == "ONCONFLICT_UPDATE" {
				need(target, "UPDATE")
			}
		case "UpdateStmt":
			need(target, "UPDATE", "SELECT")
		case "DeleteStmt":
			need(target, "DELETE", "SELECT")
		case "LockStmt":
			walk("", object["relations"], func(kind string, object map[string]any) {
				if kind == "RangeVar" {
					need(textAt(object, "relname"), "UPDATE")
				}
			})
		case "MergeStmt", "TruncateStmt":
			failed = fmt.Errorf("cannot tell what a %s needs", kind)
		case "SelectStmt":
			for _, name := range locked(object) {
				need(name, "UPDATE")
			}
		case "FuncCall":
			name := last(object["funcname"])
			if name == "pg_sequence_last_value" {
				for _, sequence := range d.outboxes {
					rights[right{"SEQUENCE", sequence, "USAGE"}] = true
				}
			}
			if failed == nil {
				failed = d.call(rights, name, false)
			}
		}
	})
	return failed
}

// locked returns the relations whose rows a SELECT locks: the ones in the clause, or all in FROM.
func locked(selected map[string]any) (names []string) {
	clauses, _ := selected["lockingClause"].([]any)
	for _, clause := range clauses {
		var only []string
		walk("", at(clause, "LockingClause", "lockedRels"), func(kind string, object map[string]any) {
			if kind == "RangeVar" {
				only = append(only, textAt(object, "relname"))
			}
		})
		walk("", selected["fromClause"], func(kind string, object map[string]any) {
			if kind != "RangeVar" {
				return
			}
			name := textAt(object, "relname")
			alias := textAt(object, "alias", "aliasname")
			if only == nil || slices.Contains(only, name) || slices.Contains(only, alias) {
				names = append(names, name)
			}
		})
	}
	return names
}
