package trust

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// judgement is the result for one statement.
type judgement struct {
	refused string   // an effect not allowed in any review: "runs a program"
	notRun  string   // an effect outside the databases, without harm: "changes a role"
	roles   []string // named in the statement
	mine    []int    // offsets of names of roles to be replaced by the review's own
	created []extension
	altered []string // extensions changed by the statement
	input   bool     // it reads rows from the client program
	neutral bool     // a DO block that makes roles: its statements for roles are replaced
}

type extension struct{ name, schema, version string }

// functions are the functions with access to files, programs, other servers, or the server itself.
var functions = []string{
	"lo_import", "lo_export", "pg_read_file", "pg_read_binary_file", "pg_stat_file", "pg_file_write", "pg_file_read", "pg_file_rename",
	"pg_file_unlink", "pg_file_sync", "pg_file_length", "pg_logfile_rotate", "pg_rotate_logfile", "pg_current_logfile", "pg_reload_conf",
	"pg_promote", "pg_switch_wal", "pg_terminate_backend", "pg_cancel_backend", "pg_create_physical_replication_slot",
	"pg_create_logical_replication_slot", "pg_drop_replication_slot", "pg_hba_file_rules", "pg_show_all_file_settings",
}

func reaches(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(functions, name) || strings.HasPrefix(name, "dblink") || strings.HasPrefix(name, "pg_ls_")
}

// trusted are the languages whose functions cannot leave the database.
var trusted = []string{"sql", "plpgsql", "plperl", "pltcl", "plv8", "pljs", "pllua"}

func text(tree any, path ...string) string {
	found, _ := syntax.At(tree, path...).(string)
	return found
}

// judge examines the tree of a statement.
func judge(tree any) judgement {
	var j judgement
	syntax.Walk(tree, func(kind string, node map[string]any) {
		j.node(kind, node)
		j.role(kind, node)
	})
	return j
}

func (j *judgement) refuse(format string, arguments ...any) {
	if j.refused == "" {
		j.refused = fmt.Sprintf(format, arguments...)
	}
}

func (j *judgement) leave(what string) {
	if j.notRun == "" {
		j.notRun = what
	}
}

// reads records that the statement waits for rows.
func (j *judgement) reads() {
	j.leave("reads rows from the program that sends it")
	j.input = true
}

func (j *judgement) node(kind string, node map[string]any) {
	switch kind {
	case "CopyStmt":
		if program, _ := node["is_program"].(bool); program {
			j.refuse("runs a program on the server")
		} else if text(node, "filename") != "" {
			j.refuse("accesses a file of the server")
		} else if from, _ := node["is_from"].(bool); from {
			j.reads()
		}
	case "TransactionStmt":
		switch text(node, "kind") {
		case "TRANS_STMT_PREPARE", "TRANS_STMT_COMMIT_PREPARED", "TRANS_STMT_ROLLBACK_PREPARED":
			j.refuse("is about a prepared transaction, which outlives its session")
		}
	case "LoadStmt":
		j.refuse("loads a library into the server")
	case "AlterSystemStmt":
		j.refuse("changes the server's configuration")
	case "CreatedbStmt", "DropdbStmt":
		j.refuse("makes or drops a database")
	case "AlterDatabaseStmt", "AlterDatabaseSetStmt", "AlterDatabaseRefreshCollStmt":
		j.leave("changes a database")
	case "CreateTableSpaceStmt", "DropTableSpaceStmt", "AlterTableSpaceOptionsStmt":
		j.refuse("makes, changes or drops a tablespace")
	case "CreateSubscriptionStmt", "AlterSubscriptionStmt", "DropSubscriptionStmt":
		j.refuse("connects the server to another one")
	case "CreateFdwStmt", "AlterFdwStmt", "CreateForeignServerStmt", "AlterForeignServerStmt", "CreateUserMappingStmt", "AlterUserMappingStmt",
		"CreateForeignTableStmt", "ImportForeignSchemaStmt":
		j.refuse("connects the server to another one, or to a file")
	case "CreatePLangStmt":
		if !slices.Contains(trusted, strings.ToLower(text(node, "plname"))) {
			j.refuse("makes a language whose functions can leave the database")
		}
	case "CreateEventTrigStmt", "AlterEventTrigStmt", "CheckPointStmt", "SecLabelStmt":
		j.leave("needs a superuser")
	case "VariableSetStmt":
		name := strings.ToLower(text(node, "name"))
		if (name == "role" || name == "session_authorization") && text(node, "kind") == "VAR_SET_VALUE" {
			j.refuse("changes the role of the session")
		}
	case "FuncCall":
		j.call(node)
	case "CreateFunctionStmt", "DoStmt":
		j.body(kind, node)
	case "CreateExtensionStmt", "AlterExtensionStmt", "AlterExtensionContentsStmt", "CommentStmt", "DropStmt":
		j.extension(kind, node)
	case "RenameStmt", "AlterOwnerStmt":
		switch text(node, "renameType") + text(node, "objectType") {
		case "OBJECT_DATABASE", "OBJECT_TABLESPACE":
			j.refuse("changes a database or a tablespace")
		case "OBJECT_ROLE":
			j.leave("changes a role")
		}
	}
}

func (j *judgement) call(node map[string]any) {
	name := strings.ToLower(syntax.Last(node["funcname"]))
	if reaches(name) {
		j.refuse("calls %s, which reaches files, other servers or the server itself", name)
	}
	if name != "set_config" {
		return
	}
	if arguments := syntax.List(node["args"]); len(arguments) > 0 {
		setting := strings.ToLower(text(syntax.Bare(arguments[0]), "A_Const", "sval", "sval"))
		if setting == "role" || setting == "session_authorization" {
			j.refuse("changes the role of the session")
		}
	}
}

func (j *judgement) extension(kind string, node map[string]any) {
	switch kind {
	case "CreateExtensionStmt":
		made := extension{name: text(node, "extname")}
		for _, option := range syntax.List(node["options"]) {
			value := text(option, "DefElem", "arg", "String", "sval")
			switch text(option, "DefElem", "defname") {
			case "schema":
				made.schema = value
			case "new_version":
				made.version = value
			}
		}
		j.created = append(j.created, made)
	case "AlterExtensionStmt", "AlterExtensionContentsStmt":
		j.altered = append(j.altered, text(node, "extname"))
	case "CommentStmt":
		switch text(node, "objtype") {
		case "OBJECT_EXTENSION":
			j.altered = append(j.altered, text(node, "object", "String", "sval"))
		case "OBJECT_DATABASE", "OBJECT_ROLE", "OBJECT_TABLESPACE":
			j.leave("comments on an object outside the database")
		}
	case "DropStmt":
		if text(node, "removeType") == "OBJECT_EXTENSION" {
			for _, dropped := range syntax.List(node["objects"]) {
				j.altered = append(j.altered, syntax.Text(dropped))
			}
		}
	}
}

// role examines the roles of a node.
func (j *judgement) role(kind string, node map[string]any) {
	if text(node, "roletype") == "ROLESPEC_CSTRING" && kind != "authrole" && kind != "newowner" {
		j.names(text(node, "rolename"))
	}
	switch kind {
	case "CreateRoleStmt", "AlterRoleStmt":
		j.leave("makes or changes a role")
		j.names(text(node, "role"))
		for _, option := range syntax.List(node["options"]) {
			on, _ := syntax.At(option, "DefElem", "arg", "Boolean", "boolval").(bool)
			switch name := text(option, "DefElem", "defname"); name {
			case "superuser", "createrole", "createdb", "isreplication", "bypassrls":
				if on {
					j.refuse("gives a role rights on the server")
				}
			}
		}
		j.predefined(node)
	case "AlterRoleSetStmt", "DropRoleStmt", "ReassignOwnedStmt", "DropOwnedStmt":
		j.leave("changes or drops a role")
	case "GrantRoleStmt":
		j.leave("makes a role a member of another one")
		for _, granted := range syntax.List(node["granted_roles"]) {
			name := text(granted, "AccessPriv", "priv_name")
			if strings.HasPrefix(name, "pg_") && node["is_grant"] == true {
				j.refuse("gives a role rights on the server")
			}
			j.names(name)
		}
	case "GrantStmt":
		switch text(node, "objtype") {
		case "OBJECT_DATABASE", "OBJECT_TABLESPACE", "OBJECT_PARAMETER_ACL":
			j.leave("grants rights on an object outside the database")
		case "OBJECT_LANGUAGE", "OBJECT_FDW", "OBJECT_FOREIGN_SERVER":
			j.leave("needs a superuser")
		}
	case "authrole", "newowner":
		j.own(node)
	case "AlterDefaultPrivilegesStmt":
		for _, option := range syntax.List(node["options"]) {
			if text(option, "DefElem", "defname") != "roles" {
				continue
			}
			for _, item := range syntax.List(syntax.At(option, "DefElem", "arg", "List", "items")) {
				if spec, is := syntax.At(item, "RoleSpec").(map[string]any); is {
					j.own(spec)
				}
			}
		}
	}
}

// own lets the review's role take the place of a named one.
func (j *judgement) own(spec map[string]any) {
	if text(spec, "roletype") == "ROLESPEC_CSTRING" {
		at, _ := spec["location"].(float64)
		j.mine = append(j.mine, int(at))
	}
}

// reserved are names not allowed for roles.
var reserved = []string{"", "none", "public", "current_user", "session_user", "current_role"}

func (j *judgement) names(role string) {
	if !slices.Contains(reserved, role) && !strings.HasPrefix(role, "pg_") && !slices.Contains(j.roles, role) {
		j.roles = append(j.roles, role)
	}
}

// predefined refuses the membership in a predefined role.
func (j *judgement) predefined(node map[string]any) {
	syntax.Walk(node["options"], func(_ string, below map[string]any) {
		if strings.HasPrefix(text(below, "rolename"), "pg_") {
			j.refuse("gives a role rights on the server")
		}
	})
}

// body examines a DO block or a function.
func (j *judgement) body(kind string, node map[string]any) {
	options := syntax.List(node["options"])
	if kind == "DoStmt" {
		options = syntax.List(node["args"])
	}
	for _, option := range options {
		argument := syntax.At(option, "DefElem", "arg")
		switch text(option, "DefElem", "defname") {
		case "language":
			language := strings.ToLower(text(argument, "String", "sval"))
			if language != "" && !slices.Contains(trusted, language) {
				j.refuse("has code in %s, a language that can leave the database", language)
			}
		case "as":
			bodies := []any{argument}
			if list := syntax.List(syntax.At(argument, "List", "items")); list != nil {
				bodies = list
			}
			for _, body := range bodies {
				j.search(syntax.Text(body), kind == "DoStmt")
			}
		}
	}
}
