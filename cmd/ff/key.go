package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := group("key", "Seed, rotate and list the keys that sign grants", `key manages the keystore of the database. Its newest active key signs claim grants.
Secrets are never printed.`)
	a.databaseFlags(cmd)
	cmd.AddCommand(a.keyListCommand(), a.keySeedCommand(), a.keyRotateCommand())
	return cmd
}

// keysView is the JSON of `ff key list`.
type keysView struct {
	Keys []keyView `json:"keys"` // the newest first
}

type keyView struct {
	ID            string `json:"id"`
	Signs         bool   `json:"signs"`
	Since         string `json:"since"`
	VerifiesUntil string `json:"verifies_until,omitempty"`
}

func (a *app) keyListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the keys, without their secrets",
		Example: `  ff key list`,
		Args:    noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				keys, err := operator.Keys(ctx, eng)
				if err != nil {
					return err
				}
				view := keysView{Keys: []keyView{}}
				for _, k := range keys {
					shown := keyView{ID: k.ID, Signs: k.Signs, Since: timestamp(k.Since)}
					if !k.VerifiesUntil.IsZero() {
						shown.VerifiesUntil = timestamp(k.VerifiesUntil)
					}
					view.Keys = append(view.Keys, shown)
				}
				if asJSON {
					return a.writeJSON(view)
				}
				if len(view.Keys) == 0 {
					_, err := io.WriteString(a.stdout, "There are no keys: run `ff key seed`.\n")
					return err
				}
				t := newTable(table.Row{"KEY", "SINCE", "SIGNS", "VERIFIES UNTIL"})
				for _, k := range view.Keys {
					signs := "no"
					if k.Signs {
						signs = "yes"
					}
					t.AppendRow(table.Row{k.ID, k.Since, signs, k.VerifiesUntil})
				}
				_, err = io.WriteString(a.stdout, t.Render()+"\n")
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// keySeeded is the JSON of `ff key seed`.
type keySeeded struct {
	ID     string `json:"id"`
	Seeded bool   `json:"seeded"`
}

func (a *app) keySeedCommand() *cobra.Command {
	var (
		asJSON     bool
		secretFile string
	)
	cmd := &cobra.Command{
		Use:   "seed [ID]",
		Short: "Put the first key into the keystore",
		Long: `seed puts the first key into the keystore, with a new random secret. If the
keystore has a key that signs, seed changes nothing: "ff key rotate" replaces it.`,
		Example: `  ff key seed
  ff key seed k1 --secret-file secret.txt`,
		Args: oneKey,
		RunE: a.does(func(ctx context.Context, args []string) error {
			secret, err := a.keySecret(secretFile)
			if err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				kid := keyArgument(args)
				seed, err := operator.SeedKey(ctx, eng, kid, secret)
				if err != nil {
					return asUsage(err)
				}
				if !seed.Seeded && secretFile != "" && !seed.SameSecret {
					return &stepError{fmt.Errorf("the keystore has a key %s with another secret", kid), "rotate the new one in under another id", exitFailed}
				}
				if asJSON {
					return a.writeJSON(keySeeded{kid, seed.Seeded})
				}
				if !seed.Seeded {
					_, err = fmt.Fprintf(a.stdout, "Key %s was there already.\n", kid)
					return err
				}
				_, err = fmt.Fprintf(a.stdout, "Key %s signs from now on.\n", kid)
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "read the secret, 64 hex digits, from a file, or - for stdin")
	return cmd
}

// keyRotated is the JSON of `ff key rotate`.
type keyRotated struct {
	ID       string `json:"id"`
	Rotated  bool   `json:"rotated"`
	Previous string `json:"previous"` // "" if none signed before
	Deleted  int    `json:"deleted"`  // retired keys whose grace was over

	Waitpoints int `json:"waitpoints"` // open ones with tokens of the previous key
}

func (a *app) keyRotateCommand() *cobra.Command {
	var (
		asJSON     bool
		secretFile string
		grace      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rotate [ID] --grace SPAN",
		Short: "Let a new key sign, and end the old one after a grace",
		Long: `rotate puts a new key into the keystore, with a new random secret. It signs from now
on. The previous key verifies for the grace, such as 24h: choose one longer than any
grant or wait lasts. --grace 0s ends a compromised key at once.`,
		Example: `  ff key rotate --grace 24h
  ff key rotate k2 --grace 0s --secret-file secret.txt`,
		Args: oneKey,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if grace < 0 {
				return &usageError{problem: "--grace is missing or negative", next: "pass --grace with a duration such as 24h, or 0s"}
			}
			secret, err := a.keySecret(secretFile)
			if err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				kid := keyArgument(args)
				rotation, err := operator.RotateKey(ctx, eng, kid, secret, grace)
				if err != nil {
					return asUsage(err)
				}
				if asJSON {
					return a.writeJSON(keyRotated{kid, rotation.Rotated, rotation.Previous, rotation.Deleted, rotation.Waitpoints})
				}
				_, err = fmt.Fprintf(a.stdout, "Key %s signs from now on. %s\n", kid, previousKey(rotation, grace))
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&grace, "grace", -1, "how long the previous key still verifies")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "read the secret, 64 hex digits, from a file, or - for stdin")
	return cmd
}

// previousKey describes the effect of a rotation on the previous signing key.
func previousKey(rotation operator.KeyRotation, grace time.Duration) string {
	switch {
	case !rotation.Rotated:
		return "It did so already, and nothing changed."
	case rotation.Previous == "":
		return "No key signed before."
	}
	text := fmt.Sprintf("Key %s verifies for %v more.", printable(rotation.Previous), grace)
	if grace == 0 {
		text = fmt.Sprintf("Key %s is deleted.", printable(rotation.Previous))
	}
	if rotation.Waitpoints > 0 {
		text += fmt.Sprintf("\n%d of the first %d open waitpoints have links of it: see `ff waitpoint reissue`.", rotation.Waitpoints, operator.MaxCountedWaitpoints)
	}
	return text
}

// oneKey checks the arguments of commands for adding a key.
func oneKey(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes one key id, not %d", cmd.CommandPath(), len(args))
	}
	return nil
}

// keyArgument returns the id of a new key: the argument, or one made of the time.
func keyArgument(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return time.Now().UTC().Format("k20060102-150405")
}

// keySecret reads a secret from a file, or makes one.
func (a *app) keySecret(file string) (wire.Secret, error) {
	if file == "" {
		return wire.NewSecret(), nil
	}
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.stdin, 1024)) }
	}
	text, err := read()
	if err != nil {
		return nil, &usageError{problem: "--secret-file: " + err.Error()}
	}
	secret, err := wire.ParseSecret(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, &usageError{problem: "--secret-file does not have a secret", next: "write 64 hex digits, such as those of `openssl rand -hex 32`"}
	}
	return secret, nil
}
