// Command thumbnails makes small copies of all photos of an album, one execution for each, and prints the album when all
// are done. The album's handler holds no worker while it waits.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/worker"
)

type Album struct {
	Cover  string
	Photos []string
}

var (
	Shrink  = engine.Kind[string, string]{Name: "shrink-photo", Lane: "photos"}
	Publish = engine.Kind[Album, string]{Name: "publish-album"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{Concurrency: 1}))
	worker.Handle(w, Shrink, shrink)
	worker.Handle(w, Publish, publish)
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, album := range []Album{
		{Cover: "beach", Photos: []string{"sea", "sand", "sun"}},
		{Cover: "torn", Photos: []string{"fog"}},
	} {
		created := must(Publish.Create(ctx, eng, album))
		fmt.Println(must(Publish.Await(ctx, eng, created.ID)))
	}
}

func publish(ctx context.Context, job worker.Job[Album]) (string, error) {
	cover, err := worker.Call(ctx, job, "cover", Shrink, job.Args.Cover)
	if ended, failed := errors.AsType[*fferr.EndedError](err); failed {
		cover, err = "no cover ("+ended.Failure+")", nil
	}
	if err != nil {
		return "", err
	}
	photos, err := worker.CallAll(ctx, job, "photos", Shrink, job.Args.Photos)
	if err != nil {
		return "", err
	}
	return cover + ": " + strings.Join(photos, ", "), nil
}

func shrink(_ context.Context, job worker.Job[string]) (string, error) {
	if job.Args == "torn" {
		return "", worker.Permanent(errors.New("the photo is torn"))
	}
	return "small " + job.Args, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
