# frozen_string_literal: true

require "socket"
require "tmpdir"

module Memscope
  # The Unix sockets of processes that listen: DIRECTORY/PID.sock, in a directory that no other user can enter.
  # @api private
  module Sockets
    # A path cannot be trusted or used. The message names it and the allowed values.
    class Refused < StandardError; end

    WORDS = Words.beside(__FILE__)
    # The bytes of a path that fit into struct sockaddr_un, without its NUL.
    MAX_PATH_BYTES = 107

    class << self
      # The directory for this process's socket, created if missing.
      def directory(configured = nil)
        runtime = ENV.fetch("XDG_RUNTIME_DIR", "")
        usual = runtime.start_with?("/") ? "#{runtime}/memscope" : File.join(Dir.tmpdir, "memscope-#{Process.euid}")
        path = configured || usual
        make(path)
        check_directory(path, Process.euid)
      rescue SystemCallError => e
        raise refused(:no_directory, path: path, error: e.class.new.message)
      end

      # @raise [Refused] unless it is a directory of that user with mode 0700, and not a link
      def check_directory(path, uid)
        stat = File.lstat(path)
        fault = if !stat.directory? then :not_a_directory
                elsif stat.uid != uid then :foreign_directory
                elsif stat.mode.anybits?(0o077) then :open_directory
                end
        return path unless fault

        raise refused(fault, path: path, uid: uid, type: stat.ftype, owner: stat.uid,
                             mode: format("%04o", stat.mode & 0o7777))
      end

      # Refuses a path unless it is absolute (abstract names are not) and short enough. `besides` is also allowed.
      def check_path(path, argument = "a socket's path", besides = "", call: nil)
        return path if Field.absolute?(path) && path.bytesize <= MAX_PATH_BYTES

        Field.refuse(argument, path, "#{besides}#{WORDS.fill(:path, bytes: MAX_PATH_BYTES)}", call: call)
      end

      # Opens a socket with mode 0600, in a checked directory. Replaces a socket without a listener, but no other file.
      def open(path)
        check_path(path)
        File.unlink(path) if stale?(path)
        server = UNIXServer.new(path)
        File.chmod(0o600, path)
        server
      rescue Errno::EADDRINUSE
        raise occupied(path)
      rescue SystemCallError => e
        server&.close
        raise refused(:unopened, path: path, error: e.class.new.message)
      end

      # Removes the sockets of processes that are gone from a checked directory. A process in another PID namespace
      # looks gone too, so a socket with a listener stays.
      def sweep(directory)
        Dir.children(directory).grep(/\A\d+\.sock\z/).each do |name|
          path = File.join(directory, name)
          File.unlink(path) if !File.exist?("/proc/#{name.to_i}") && stale?(path)
        end
      rescue SystemCallError
        nil # another process sweeps too
      end

      def refused(text, **figures) = Refused.new(WORDS.fill(text, figures))

      private

      def make(path)
        Dir.mkdir(path, 0o700)
      rescue Errno::EEXIST
        nil
      end

      # True if it is a socket of this user, not a link, on which nobody listens.
      def stale?(path)
        own_socket?(path) && !Socket.open(:UNIX, :STREAM) { |socket| socket.connect_nonblock(Socket.sockaddr_un(path)) }
      rescue Errno::ECONNREFUSED
        true
      rescue SystemCallError
        false
      end

      def own_socket?(path)
        stat = File.lstat(path)
        stat.socket? && stat.owned?
      end

      def occupied(path)
        own_socket?(path) ? refused(:listens, path: path) : refused(:occupied, path: path, type: File.lstat(path).ftype)
      rescue SystemCallError
        refused(:was_occupied, path: path)
      end
    end
  end
end
