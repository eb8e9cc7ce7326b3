module github.com/OWNER/redlockd/clients/go

go 1.22
