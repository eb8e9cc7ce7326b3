module driver

go 1.22

require github.com/OWNER/redlockd/clients/go v0.1.0

replace github.com/OWNER/redlockd/clients/go => ../../../../clients/go
