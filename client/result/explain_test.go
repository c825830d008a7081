package result

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A check is made by a call of check or fail with its name, or as a Check with its name; all of them are found in the source.
func TestEveryCheckThatAnyCommandMakesIsExplained(t *testing.T) {
	var names []string
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				if name == "check" && len(n.Args) > 1 {
					add(n.Args[0])
				} else if name == "fail" && len(n.Args) > 2 {
					add(n.Args[1])
				}
			case *ast.CompositeLit:
				checks := []ast.Expr{n}
				if slice, ok := n.Type.(*ast.ArrayType); ok && isCheck(slice.Elt) {
					checks = n.Elts
				} else if !isCheck(n.Type) {
					return true
				}
				for _, c := range checks {
					for _, e := range c.(*ast.CompositeLit).Elts {
						if kv := e.(*ast.KeyValueExpr); kv.Key.(*ast.Ident).Name == "Name" {
							add(kv.Value)
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"completed", "connected", "window", "own_copies", "books_commands", "server_exit", "asked_rate"} {
		if !slices.Contains(names, known) {
			t.Errorf("%s was not found in the source", known)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(Explanations(), func(e Explanation) bool { return e.Code == name }) {
			t.Errorf("check %q is not explained", name)
		}
	}
}

func isCheck(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Check"
}
