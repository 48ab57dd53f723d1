package pgserver

import (
	"strings"
	"testing"
)

func TestReadSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		env     map[string]string
		want    settings
		wantErr string
	}{
		{
			name: "defaults",
			want: settings{image: "postgres:17-alpine", major: 17},
		},
		{
			name: "everything set",
			env: map[string]string{
				"FF_POSTGRES": "url", "DATABASE_URL": "postgres://h/d", "FF_POSTGRES_IMAGE": "postgres:14", "FF_POSTGRES_VERSION": "18",
			},
			want: settings{choice: "url", databaseURL: "postgres://h/d", image: "postgres:14", major: 18},
		},
		{name: "unknown source", env: map[string]string{"FF_POSTGRES": "podman"}, wantErr: `FF_POSTGRES is "podman"`},
		{name: "url without one", env: map[string]string{"FF_POSTGRES": "url"}, wantErr: "DATABASE_URL is empty"},
		{name: "version too old", env: map[string]string{"FF_POSTGRES_VERSION": "13"}, wantErr: `FF_POSTGRES_VERSION is "13"`},
		{name: "version not a number", env: map[string]string{"FF_POSTGRES_VERSION": "17.5"}, wantErr: "14 to 18"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := readSettings(func(name string) string { return test.env[name] })
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || got != test.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

// Serial, because it sets the environment.
func TestStartFromURL(t *testing.T) {
	const secret = "hunter2"
	tests := []struct{ name, url, want string }{
		{"nobody listens", "postgres://user:" + secret + "@127.0.0.1:1/db", "does not answer"},
		{"not a URL", "host=127.0.0.1 password=" + secret, "not a URL"},
		{"unparsable", "postgres://user:" + secret + "@127.0.0.1:port/db", "not a URL"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("FF_POSTGRES", "")
			t.Setenv("DATABASE_URL", test.url)
			_, err := Start(t.Context(), Options{Purpose: Tests})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func TestStartRefusesDockerOutsideTests(t *testing.T) {
	t.Setenv("FF_POSTGRES", "docker")
	_, err := Start(t.Context(), Options{Purpose: Demo})
	if err == nil || !strings.Contains(err.Error(), "only the tests use") {
		t.Fatalf("error %v", err)
	}
}

func TestStartRefusesAnUnknownMajor(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://nobody@localhost:1/none")
	for _, major := range []int{-1, 13, 19} {
		if _, err := Start(t.Context(), Options{Purpose: Demo, Major: major}); err == nil || !strings.Contains(err.Error(), "from 14 to 18") {
			t.Errorf("major %d: error %v", major, err)
		}
	}
}
