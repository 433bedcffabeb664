# frozen_string_literal: true

require_relative "sockets"

module Memscope
  # Files that only this process's user may read or write, in a directory that passed Sockets.directory.
  # @api private
  module PrivateFile
    # Opens a file, or creates one with mode 0600, for the caller to close. Follows no link, and does not block, as
    # opening a pipe would.
    #
    # @raise [Sockets::Refused] unless it is a regular file of this user with mode 0600
    def self.open(path, flags)
      file = File.new(path, flags | File::NOFOLLOW | File::NONBLOCK, 0o600)
      stat = file.stat
      return file if stat.file? && stat.owned? && stat.mode.nobits?(0o077)

      file.close
      raise Sockets::Refused, "#{path}: allowed: a file of uid #{Process.euid} with mode 0600"
    end
  end
end
