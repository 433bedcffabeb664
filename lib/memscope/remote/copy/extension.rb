# frozen_string_literal: true

module Memscope
  class Copy
    # The file memscope.so for the Ruby of another process.
    module Extension
      # In a binary gem, the directory is named after the Ruby.
      FILE = %r{/memscope/(?:\d+\.\d+/)?memscope\.so\z}
      LIBRARY = File.expand_path("../../..", __dir__)

      class << self
        # @return [String] the path of the one that this process has loaded
        # @raise [Client::Failed] if it could not be loaded
        def own
          $LOADED_FEATURES.grep(FILE).first or raise Client::Failed, Native.absence
        end

        # Looks in the gem directories of the other process's Ruby, beside those of this one, and in binary gems.
        #
        # @raise [Client::Failed] if there is none, with the command that installs it
        def of(pid, ruby)
          minor = ruby[/\A\d+\.\d+/]
          abi = "#{minor}.0"
          prefix = File.dirname(File.readlink("/proc/#{pid}/exe"), 2)
          beside = Gem.path.map { |path| path.sub(/\d+\.\d+\.\d+\z/, abi) }
          homes = ["#{prefix}/lib/ruby/gems/#{abi}", *beside]
          directories = [LIBRARY, *homes.map { |home| "#{home}/gems/memscope-#{VERSION}-*/lib" }]
          found = Dir[*homes.map { |home| "#{home}/extensions/*/#{abi}*/memscope-#{VERSION}/memscope/memscope.so" },
                      *directories.map { |directory| "#{directory}/memscope/#{minor}/memscope.so" }]
          found.first or raise failed(:not_installed, pid: pid, ruby: ruby, version: VERSION, gem: "#{prefix}/bin/gem")
        end

        # @return [String] the same file, without links
        # @raise [Client::Failed] unless only this user and root can have written it
        def check(path)
          file = File.realpath(path)
          open = [file, File.dirname(file)].find { |one| open?(File.stat(one)) }
          open ? raise(failed(:untrusted, path: open)) : file
        rescue SystemCallError => e
          raise failed(:unreadable, path: path, why: e.class.new.message)
        end

        private

        def open?(stat) = ![0, Process.euid].include?(stat.uid) || stat.mode.anybits?(0o022)

        def failed(text, **figures) = Client::Failed.new(WORDS.fill(text, figures))
      end
    end
  end
end
