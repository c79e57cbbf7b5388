# The binary alone: static, without a shell, not as root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /drover ./cmd/drover

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /drover /drover
USER 65532:65532
ENTRYPOINT ["/drover"]
CMD ["serve"]
